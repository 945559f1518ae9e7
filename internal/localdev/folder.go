package localdev

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

const (
	ownerFile = "owner" // locked by the process that the folder belongs to

	// A process that was killed may have children that write a moment longer.
	removeTries = 40
	removePause = 50 * time.Millisecond
)

// Folder is a temporary folder that outlives its process only until the next one of its kind is
// made: a process that was killed cannot clean up, so its successors do it. Whether the owner lives
// is asked of the kernel, by a lock, and not by a pid, which may be of another container.
type Folder struct {
	Path  string
	owner *os.File
}

// NewFolder makes walrelay-<kind>-<random> in parent (empty: the folder for temporary files) and
// removes those of that kind whose process has died. Only the owner may look into it.
func NewFolder(parent, kind string) (*Folder, error) {
	if parent == "" {
		parent = os.TempDir()
	}
	sweep(parent, kind)
	path, err := os.MkdirTemp(parent, "walrelay-"+kind+"-")
	if err != nil {
		return nil, fmt.Errorf("make a folder: %w", err)
	}
	f := &Folder{Path: path}
	if err := f.claim(); err != nil {
		return nil, errors.Join(fmt.Errorf("claim %s: %w", path, err), os.RemoveAll(path))
	}
	return f, nil
}

// claim gives the file its name only when it is locked: a folder with that file and no lock on it
// belongs to a dead process.
func (f *Folder) claim() error {
	name := filepath.Join(f.Path, ownerFile)
	file, err := os.OpenFile(name+".new", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	if _, err := tryLock(file); err != nil {
		return errors.Join(err, file.Close())
	}
	f.owner = file
	return os.Rename(name+".new", name)
}

// Keep leaves the folder in place, for good.
func (f *Folder) Keep() error {
	return errors.Join(os.RemoveAll(filepath.Join(f.Path, ownerFile)), f.release())
}

// Remove removes the folder. It may be called twice.
func (f *Folder) Remove() error { return errors.Join(removeAll(f.Path), f.release()) }

func (f *Folder) release() error {
	if f.owner == nil {
		return nil
	}
	owner := f.owner
	f.owner = nil
	return owner.Close()
}

func removeAll(path string) (err error) {
	for range removeTries {
		if err = os.RemoveAll(path); err == nil {
			return nil
		}
		time.Sleep(removePause)
	}
	return fmt.Errorf("remove %s: %w", path, err)
}

// sweep is best effort: what is another user's stays.
func sweep(parent, kind string) {
	owners, err := filepath.Glob(filepath.Join(parent, "walrelay-"+kind+"-*", ownerFile))
	if err != nil {
		return
	}
	for _, name := range owners {
		file, err := os.OpenFile(name, os.O_RDWR, 0)
		if err != nil {
			continue
		}
		if dead, err := tryLock(file); dead && err == nil {
			os.RemoveAll(filepath.Dir(name))
		}
		file.Close()
	}
}
