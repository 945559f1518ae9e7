package localdev

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func glob(t *testing.T, pattern string) []string {
	t.Helper()
	found, err := filepath.Glob(pattern)
	if err != nil {
		t.Error(err)
	}
	return found
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// A folder goes when its process has died, and not before; a kept one stays.
func TestFoldersOfTheDeadAreSwept(t *testing.T) {
	parent := t.TempDir()
	folder := func() *Folder {
		t.Helper()
		f, err := NewFolder(parent, "kind")
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	living, dead, kept := folder(), folder(), folder()
	if err := os.MkdirAll(filepath.Join(dead.Path, "deep", "er"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := kept.Keep(); err != nil {
		t.Fatal(err)
	}
	dead.owner.Close() // what the kernel does when a process dies

	last := folder()
	if !exists(living.Path) || !exists(kept.Path) || !exists(last.Path) {
		t.Errorf("living %v, kept %v, new %v", exists(living.Path), exists(kept.Path), exists(last.Path))
	}
	if exists(dead.Path) {
		t.Error("the dead process's folder is still there")
	}
	for _, f := range []*Folder{living, last, last} {
		if err := f.Remove(); err != nil || exists(f.Path) {
			t.Errorf("Remove: %v", err)
		}
	}
}

// A start that is given up in the middle of initdb leaves nothing behind.
func TestGivenUpStartLeavesNothing(t *testing.T) {
	binaries := anyBinaries(t)
	parent := openFolder(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	watching := make(chan struct{})
	go func() {
		defer close(watching)
		// initdb makes this folder at the start of its longest step.
		for len(glob(t, filepath.Join(parent, "*", "data", "global"))) == 0 && ctx.Err() == nil {
			time.Sleep(5 * time.Millisecond)
		}
		cancel()
	}()
	defer func() { <-watching }()
	if _, err := New(ctx, Options{Binaries: binaries, Parent: parent}); err == nil {
		t.Error("started")
	}
	cancel()
	left, err := os.ReadDir(parent)
	if err != nil || len(left) != 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}
