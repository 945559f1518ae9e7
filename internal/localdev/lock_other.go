//go:build !unix

package localdev

import (
	"context"
	"errors"
	"fmt"
)

// LockFile exists where servers can be started: on Linux, macOS and the BSDs.
func LockFile(context.Context, string) (func(), error) {
	return nil, fmt.Errorf("lock a file: %w", errors.ErrUnsupported)
}
