//go:build !unix

package child

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
)

func setAttributes(*exec.Cmd, *Account, os.Signal) error {
	return fmt.Errorf("servers are started on Linux, macOS and the BSDs only: %w", errors.ErrUnsupported)
}

func killGroup(leader *os.Process) error { return leader.Kill() }
