package localdev

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"walrelay/internal/localdev/child"
)

// longestSocket is the length of a unix socket's path that every system takes (macOS 103, Linux 107).
const longestSocket = 103

// initialise makes the server's folders and runs initdb, which takes about a second.
func (s *Server) initialise(ctx context.Context, parent string) (err error) {
	if parent == "" {
		parent = temporary(s.as)
	}
	if s.dir, err = s.makeFolder(parent); err != nil {
		return err
	}
	s.socket = s.dir
	if len(filepath.Join(s.dir.Path, ".s.PGSQL.65535")) > longestSocket {
		if s.socket, err = s.makeFolder("/tmp"); err != nil {
			return err
		}
	}
	// PostgreSQL syncs what it writes; initdb's own output need not be: without it the folder is of no use.
	args := []string{"--pgdata=" + s.data(), "--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"}
	if s.binaries.Major >= oldestMajor {
		args = append(args, "--no-instructions")
	}
	initdb := exec.Command(filepath.Join(s.binaries.Dir, "initdb"), args...)
	p, err := s.spawn(initdb, syscall.SIGKILL)
	if err != nil {
		return err
	}
	if err := p.Wait(ctx); err != nil {
		return errors.Join(fmt.Errorf("wait for initdb: %w", err), p.Kill())
	}
	if err := p.Err(); err != nil {
		return fmt.Errorf("initdb: %w\n%s", err, s.LogTail())
	}
	return s.configure()
}

// configure writes the default settings to the file of the server, where ALTER SYSTEM can still change
// them; what is on the command line it cannot.
func (s *Server) configure() error {
	file, err := os.OpenFile(filepath.Join(s.data(), "postgresql.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	for name, value := range defaultSettings() {
		_, werr := fmt.Fprintf(file, "%s = '%s'\n", name, value)
		err = errors.Join(err, werr)
	}
	return errors.Join(err, file.Close())
}

func (s *Server) makeFolder(parent string) (*Folder, error) {
	f, err := NewFolder(parent, "pg")
	if err != nil {
		return nil, err
	}
	return f, s.as.Own(f.Path)
}

// temporary is a folder for temporary files that the account can reach: root's TMPDIR may lie
// behind a folder that is closed to others.
func temporary(as *child.Account) string {
	dir := os.TempDir()
	if as == nil {
		return dir
	}
	for p := dir; ; p = filepath.Dir(p) {
		if info, err := os.Stat(p); err != nil || info.Mode()&0o001 == 0 {
			return "/tmp"
		}
		if p == filepath.Dir(p) {
			return dir
		}
	}
}

// spawn runs cmd as the account, in the server's folder, with its output in the log.
func (s *Server) spawn(cmd *exec.Cmd, orphaned syscall.Signal) (*child.Process, error) {
	log, err := os.OpenFile(s.LogPath(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open the log: %w", err)
	}
	defer log.Close() // the child has its own copy
	cmd.Stdout, cmd.Stderr, cmd.Dir = log, log, s.dir.Path
	// PGDATA, PGPORT and their kind are about somebody's own server; messages are to be in English.
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(kv string) bool {
		return strings.HasPrefix(kv, "PG") || strings.HasPrefix(kv, "LC_") || strings.HasPrefix(kv, "LANG")
	}), "LC_ALL=C", "HOME="+s.dir.Path)
	return child.Start(cmd, s.as, orphaned)
}

func (s *Server) data() string { return filepath.Join(s.dir.Path, "data") }

// Dir is the folder that holds the server's data and log.
func (s *Server) Dir() string { return s.dir.Path }

// LogPath is the server's log, of all its starts.
func (s *Server) LogPath() string { return filepath.Join(s.dir.Path, "postgres.log") }

// LogTail is the end of the log, for error messages.
func (s *Server) LogTail() string {
	const enough = 2048 // bytes: about twenty lines
	f, err := os.Open(s.LogPath())
	if err != nil {
		return ""
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size() > enough {
		if _, err := f.Seek(-enough, io.SeekEnd); err != nil {
			return ""
		}
	}
	tail, err := io.ReadAll(io.LimitReader(f, enough))
	if err != nil {
		return ""
	}
	return string(tail)
}

// leave keeps or removes the folders.
func (s *Server) leave() error {
	var errs []error
	for _, f := range []*Folder{s.socket, s.dir} {
		switch {
		case f == nil: // initialise did not get so far
		case s.keep && f == s.dir:
			errs = append(errs, f.Keep())
		default:
			errs = append(errs, f.Remove())
		}
	}
	return errors.Join(errs...)
}
