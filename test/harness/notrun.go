package harness

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Skip skips the test because this machine lacks something, and has that listed at the end of the
// whole run: what could not run is said, not hidden among the passes.
func Skip(t testing.TB, what, why string) {
	t.Helper()
	Note(what, why)
	t.Skipf("NOT RUN: %s: %s", what, why)
}

// Note is Skip's entry in the list without the skip, for something that ran with a lesser server.
func Note(what, why string) {
	path := os.Getenv(EnvNotRun)
	if path == "" {
		return
	}
	// One write of one line: several test binaries append at the same time.
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		fmt.Fprintln(os.Stderr, "harness: note what could not run:", err)
		return
	}
	defer f.Close()
	line := strings.Join(strings.Fields(what+": "+why), " ")
	if _, err := fmt.Fprintln(f, line); err != nil {
		fmt.Fprintln(os.Stderr, "harness: note what could not run:", err)
	}
}

// KeepLog copies a server's log out of the folder that goes with the server, and returns where to.
// In the answer's place it says what went wrong: it is for a message of a test that failed already.
func KeepLog(log, name string) string {
	dir := os.Getenv(EnvLogs)
	if dir == "" {
		dir = filepath.Join(os.TempDir(), "walrelay-logs")
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err.Error()
	}
	kept := filepath.Join(dir, fmt.Sprintf("%s-%s-%d.log", clean(name, "-"), time.Now().Format("150405.000"), os.Getpid()))
	from, err := os.Open(log)
	if err != nil {
		return err.Error()
	}
	defer from.Close()
	to, err := os.Create(kept)
	if err != nil {
		return err.Error()
	}
	defer to.Close()
	if _, err := io.Copy(to, from); err != nil {
		return err.Error()
	}
	return kept
}
