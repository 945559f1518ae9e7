package localdev

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"time"

	embeddedpostgres "github.com/fergusstrange/embedded-postgres"
)

// fetchLimit bounds one fetch of about 15 MB, unpacking included.
const fetchLimit = 10 * time.Minute

// Progress tells a person what a fetch is doing. It comes once at the start, each second, and once
// with Done.
type Progress struct {
	Release Release
	Elapsed time.Duration
	Done    bool
}

func (p Progress) String() string {
	if p.Done {
		return fmt.Sprintf("fetched %s in %.1fs", p.Release, p.Elapsed.Seconds())
	}
	return fmt.Sprintf("fetching %s (about 15 MB, only once): %.0fs", p.Release, p.Elapsed.Seconds())
}

// Fetch brings the release into the cache folder and returns it; what is there already is not
// fetched again. Several processes may fetch at once: one does the work. It is bounded to ten
// minutes. progress may be nil.
func Fetch(ctx context.Context, cfg Config, release Release, progress func(Progress)) (Binaries, error) {
	cache, err := cacheFolder(cfg)
	if err != nil {
		return Binaries{}, err
	}
	unlock, err := LockFile(ctx, filepath.Join(cache, ".lock-"+release.Artifact))
	if err != nil {
		return Binaries{}, err
	}
	defer unlock()
	final := folderOf(cache, release)
	if b, err := identify(ctx, filepath.Join(final, "bin")); err == nil {
		return b, nil
	}
	ctx, cancel := context.WithTimeout(ctx, fetchLimit)
	defer cancel()
	if err := fetchInto(ctx, cfg.Repository, cache, final, release, progress); err != nil {
		return Binaries{}, fmt.Errorf("fetch %s: %w (or: install PostgreSQL %d or later; set PG_BIN to the folder that holds its "+
			"initdb and postgres; or set PG_REPOSITORY to the base URL of a Maven mirror that this machine reaches)", release, err, oldestMajor)
	}
	return identify(ctx, filepath.Join(final, "bin"))
}

// fetchInto unpacks into a folder beside the final one and renames it, so that a folder of the
// final name is always whole.
func fetchInto(ctx context.Context, repository, cache, final string, release Release, progress func(Progress)) error {
	work, err := os.MkdirTemp(cache, "fetching-")
	if err != nil {
		return fmt.Errorf("make a folder: %w", err)
	}
	defer os.RemoveAll(work)

	if progress == nil {
		progress = func(Progress) {}
	}
	start := time.Now()
	progress(Progress{Release: release})
	// The library takes no context. When ours ends first, the download is left to the process's end.
	done := make(chan error, 1)
	go func() { done <- unpack(repository, work, release) }()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for waiting := true; waiting; {
		select {
		case err := <-done:
			if err != nil {
				return err
			}
			waiting = false
		case <-tick.C:
			progress(Progress{Release: release, Elapsed: time.Since(start)})
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	tree := filepath.Join(work, "tree")
	if err := readableByAll(tree); err != nil {
		return err
	}
	if err := os.RemoveAll(final); err != nil {
		return fmt.Errorf("remove a broken copy: %w", err)
	}
	if err := os.Rename(tree, final); err != nil {
		return fmt.Errorf("move into place: %w", err)
	}
	progress(Progress{Release: release, Elapsed: time.Since(start), Done: true})
	return nil
}

// unpack leaves bin, lib and share of the release in work/tree.
//
// embedded-postgres can only fetch, unpack, initialise and start in one go, and it cannot start as
// root. So it is given a data folder that holds nothing but the mark that makes it skip initdb: it
// fetches and unpacks, asks pg_ctl to start, and pg_ctl refuses. It hands what pg_ctl said to its
// logger, and before that it says nothing; so a logger that was written to proves that everything
// was unpacked, and an empty one that the error is a real one.
func unpack(repository, work string, release Release) error {
	data := filepath.Join(work, "data")
	if err := os.Mkdir(data, 0o755); err != nil {
		return fmt.Errorf("make a folder: %w", err)
	}
	if err := os.WriteFile(filepath.Join(data, "PG_VERSION"), fmt.Appendf(nil, "%d\n", release.Major), 0o644); err != nil {
		return fmt.Errorf("write the mark of an initialised folder: %w", err)
	}
	var said bytes.Buffer
	config := embeddedpostgres.DefaultConfig().
		Version(embeddedpostgres.PostgresVersion(release.Artifact)).
		CachePath(filepath.Join(work, "archive")).
		RuntimePath(filepath.Join(work, "runtime")).
		BinariesPath(filepath.Join(work, "tree")).
		DataPath(data).
		Port(0). // it only checks that it could listen there
		Logger(&said)
	if repository != "" {
		config = config.BinaryRepositoryURL(repository)
	}
	defer http.DefaultClient.CloseIdleConnections() // the client that the library uses
	server := embeddedpostgres.NewDatabase(config)
	err := server.Start()
	if err == nil {
		return errors.Join(errors.New("a server started from an empty folder"), server.Stop())
	}
	if said.Len() == 0 {
		return err
	}
	return nil
}

// readableByAll lets an unprivileged user run what root fetched, whatever root's umask is.
func readableByAll(tree string) error {
	err := filepath.WalkDir(tree, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Type()&fs.ModeSymlink != 0 {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		mode := info.Mode().Perm()
		return os.Chmod(path, mode|(mode&0o500)>>3|(mode&0o500)>>6) // what the owner may read and run, all may
	})
	if err != nil {
		return fmt.Errorf("make the unpacked files readable: %w", err)
	}
	return nil
}

// fetched lists what is in the cache folder, newest first.
func fetched(ctx context.Context, cfg Config) []Binaries {
	cache, err := cacheFolder(cfg)
	if err != nil {
		return nil
	}
	var all []Binaries
	for _, release := range Releases() {
		if b, err := inspect(ctx, filepath.Join(folderOf(cache, release), "bin")); err == nil {
			all = append(all, b)
		}
	}
	return all
}

func folderOf(cache string, r Release) string {
	return filepath.Join(cache, fmt.Sprintf("postgres-%s-%s-%s", r.Artifact, runtime.GOOS, runtime.GOARCH))
}

// CacheFolder is the folder for what is fetched once, and it exists afterwards.
func CacheFolder(cfg Config) (string, error) { return cacheFolder(cfg) }

// Root does not use its home: an unprivileged user must be able to run what is fetched, and /root
// is closed to it.
func cacheFolder(cfg Config) (string, error) {
	dir := cfg.Cache
	switch {
	case dir != "":
		abs, err := filepath.Abs(dir)
		if err != nil {
			return "", fmt.Errorf("WALRELAY_CACHE: %w", err)
		}
		dir = abs
	case os.Geteuid() == 0:
		dir = "/var/cache/walrelay"
	default:
		base, err := os.UserCacheDir()
		if err != nil { // no home folder, as in a small container
			base = filepath.Join(os.TempDir(), fmt.Sprintf("cache-%d", os.Getuid()))
		}
		dir = filepath.Join(base, "walrelay")
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("make the cache folder (set WALRELAY_CACHE to choose another): %w", err)
	}
	return dir, nil
}
