package localdev

import (
	"context"
	"fmt"
	"os"
	"time"
)

// LockFile takes an exclusive lock on the file at path, which it creates, and returns what frees
// it. The lock is the kernel's: it ends with the process too. Waiting for such a lock cannot be
// cancelled, so it is tried ten times a second.
func LockFile(ctx context.Context, path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open lock file: %w", err)
	}
	for {
		locked, err := tryLock(f)
		if locked {
			return func() { f.Close() }, nil
		}
		if err != nil {
			f.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, fmt.Errorf("wait for the lock on %s: %w", path, ctx.Err())
		case <-time.After(100 * time.Millisecond):
		}
	}
}
