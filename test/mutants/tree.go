package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// tree is the copy that bugs are planted in. It has the same path in every run, so that the build cache
// serves what a bug does not touch.
type tree struct {
	root string // what it is a copy of
	dir  string
	bin  string
	logs string
}

func moduleRoot(ctx context.Context) (string, error) {
	out, err := output(ctx, "", "go", "env", "GOMOD")
	if err != nil {
		return "", err
	}
	return filepath.Dir(strings.TrimSpace(string(out))), nil
}

// copyTree makes the copy equal to what git knows of the working tree and what it would add.
func copyTree(ctx context.Context, root, cache string) (*tree, error) {
	t := &tree{root: root, dir: filepath.Join(cache, "tree"), bin: filepath.Join(cache, "bin"), logs: filepath.Join(cache, "logs")}
	if err := os.RemoveAll(t.logs); err != nil {
		return nil, err
	}
	for _, dir := range []string{t.dir, t.bin, t.logs} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, err
		}
	}
	out, err := output(ctx, root, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	if err != nil {
		return nil, err
	}
	wanted := make(map[string]bool)
	for file := range strings.SplitSeq(string(out), "\x00") {
		if file == "" {
			continue
		}
		switch err := t.copy(file); {
		case errors.Is(err, fs.ErrNotExist): // deleted, and git has not been told
		case err != nil:
			return nil, err
		default:
			wanted[file] = true
		}
	}
	return t, filepath.WalkDir(t.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		file, err := filepath.Rel(t.dir, path)
		if err != nil || wanted[filepath.ToSlash(file)] {
			return err
		}
		return os.Remove(path)
	})
}

// copy makes one file of the copy equal to its original. A file that is equal is left alone.
func (t *tree) copy(file string) error {
	from, to := filepath.Join(t.root, file), filepath.Join(t.dir, file)
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if old, err := os.ReadFile(to); err == nil && bytes.Equal(old, b) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return os.WriteFile(to, b, 0o644)
}

// plant applies the patch to the copy.
func (t *tree) plant(ctx context.Context, m mutant) error {
	if err := apply(ctx, t.dir, m.patch); err != nil {
		return fmt.Errorf("STALE: %w", err)
	}
	return nil
}

func (t *tree) restore(m mutant) error {
	var errs []error
	for _, file := range m.files {
		err := t.copy(file)
		if errors.Is(err, fs.ErrNotExist) { // the patch has made it
			err = os.Remove(filepath.Join(t.dir, file))
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// apply runs git apply on a directory that need not be a repository. One line of context on either side is
// enough, so that a patch survives changes in its neighbourhood.
func apply(ctx context.Context, dir string, patch []byte, args ...string) error {
	cmd := exec.CommandContext(ctx, "git", append([]string{"apply", "-C1", "--whitespace=nowarn"}, args...)...)
	cmd.Dir = dir
	// Without this git would take the copy for a folder of the repository that it lies in, and pass over
	// every file of the patch in silence.
	cmd.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(dir))
	cmd.Stdin = bytes.NewReader(patch)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("git apply: %w: %s", err, bytes.TrimSpace(out))
	}
	return nil
}

// output runs a command that is expected to succeed.
func output(ctx context.Context, dir, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return nil, fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, bytes.TrimSpace(exit.Stderr))
	}
	return out, err
}
