package harness

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"walrelay/internal/localdev"
)

// Server is a PostgreSQL for tests: this test's own (Fresh), this binary's, or one that
// harness/cmd/up started for all packages.
type Server struct {
	Major       int
	tcp, socket string           // URLs of database postgres
	own         *localdev.Server // nil when another process owns it
}

// Option is a choice for Postgres, Fresh and EachVersion.
type Option func(*choice)

type choice struct {
	major    int // 0: the first of PG_VERSIONS, else the preferred one of this machine
	settings map[string]string
	noSync   bool
}

// Major asks for that PostgreSQL.
func Major(major int) Option { return func(c *choice) { c.major = major } }

// Setting starts the server with a setting of its own. Servers are shared among tests that ask for
// the same settings.
func Setting(name, value string) Option {
	return func(c *choice) { c.settings[name] = value }
}

// NoSync is fsync=off, for tests whose subject is not what survives.
func NoSync() Option { return func(c *choice) { c.noSync = true } }

func choose(opts []Option) *choice {
	c := &choice{settings: map[string]string{}}
	for _, o := range opts {
		o(c)
	}
	return c
}

// Settings are those of a server that many tests share.
func Settings() map[string]string {
	return map[string]string{"max_connections": "300", "max_replication_slots": "100", "max_wal_senders": "100"}
}

// Postgres is a server that tests share. Whoever restarts it, kills it or leaves a transaction open
// in it (creating a slot waits for every transaction of the whole server) takes Fresh.
func Postgres(t testing.TB, opts ...Option) *Server {
	t.Helper()
	ctx := setUp(t)
	c := choose(opts)
	if len(c.settings) == 0 && !c.noSync {
		if s := handedOver(t, c.major); s != nil {
			return s
		}
	}
	binaries := binariesFor(t, ctx, c.major)
	key := fmt.Sprint(binaries.Major, c.settings, c.noSync) // fmt sorts a map's keys
	shared.Lock()
	defer shared.Unlock()
	server := shared.postgres[key]
	if server == nil {
		settings := Settings()
		for name, value := range c.settings {
			settings[name] = value
		}
		var err error
		server, err = localdev.New(context.WithoutCancel(ctx), localdev.Options{Binaries: binaries, Settings: settings, NoSync: c.noSync})
		if err != nil {
			t.Fatal(err)
		}
		shared.postgres[key] = server
	}
	return &Server{Major: binaries.Major, tcp: server.URL("postgres"), socket: server.SocketURL("postgres"), own: server}
}

// Fresh is a server for this test alone, which may do with it what it likes. It ends with the test.
func Fresh(t testing.TB, opts ...Option) *Server {
	t.Helper()
	ctx := setUp(t)
	c := choose(opts)
	binaries := binariesFor(t, ctx, c.major)
	server, err := localdev.New(ctx, localdev.Options{Binaries: binaries, Settings: c.settings, NoSync: c.noSync})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log of %s kept: %s", binaries, KeepLog(server.LogPath(), t.Name()+"-postgres"))
		}
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	return &Server{Major: binaries.Major, tcp: server.URL("postgres"), socket: server.SocketURL("postgres"), own: server}
}

// Control starts, stops and kills the server. Only a Fresh one may be asked for it.
func (s *Server) Control() *localdev.Server {
	if s.own == nil {
		panic("harness: this server belongs to other tests too: use harness.Fresh")
	}
	return s.own
}

// URL connects to a database over TCP.
func (s *Server) URL(database string) string { return withDatabase(s.tcp, database) }

// SocketURL connects to a database over the unix socket.
func (s *Server) SocketURL(database string) string { return withDatabase(s.socket, database) }

func withDatabase(base, database string) string {
	u, err := url.Parse(base)
	if err != nil {
		panic("harness: " + err.Error()) // localdev wrote it
	}
	u.Path = "/" + database
	return u.String()
}

// EachVersion runs the test once for each major of PG_VERSIONS; without it, for each that is
// installed, was fetched before or may be fetched now.
func EachVersion(t *testing.T, test func(t *testing.T, server *Server), opts ...Option) {
	t.Helper()
	ctx := setUp(t)
	majors, err := Majors(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if len(majors) == 0 {
		Skip(t, t.Name(), "no PostgreSQL is installed")
	}
	for _, major := range majors {
		t.Run(fmt.Sprintf("postgres-%d", major), func(t *testing.T) {
			test(t, Postgres(t, append(slices.Clone(opts), Major(major))...))
		})
	}
}

// Majors are the PostgreSQL majors that tests run against, oldest first.
func Majors(ctx context.Context) ([]int, error) {
	asked, err := askedMajors()
	if err != nil || asked != nil {
		return asked, err
	}
	var majors []int
	for _, b := range localdev.Available(ctx, localConfig()) {
		majors = append(majors, b.Major)
	}
	for _, e := range endpoints() {
		majors = append(majors, e.Major)
	}
	if mayFetch() {
		majors = append(majors, released()...)
	}
	slices.Sort(majors)
	return slices.Compact(majors), nil
}

func released() []int {
	var majors []int
	for _, r := range localdev.Releases() {
		majors = append(majors, r.Major)
	}
	slices.Sort(majors)
	return majors
}

// askedMajors reads PG_VERSIONS; nil when it is not set.
func askedMajors() ([]int, error) {
	text := strings.TrimSpace(os.Getenv(EnvVersions))
	if text == "" {
		return nil, nil
	}
	if text == "all" {
		return released(), nil
	}
	var majors []int
	for word := range strings.SplitSeq(text, ",") {
		major, err := strconv.Atoi(strings.TrimSpace(word))
		if err != nil {
			return nil, fmt.Errorf("%s=%s: write majors with commas between, as 15,17, or all", EnvVersions, text)
		}
		majors = append(majors, major)
	}
	return majors, nil
}

// binariesFor skips the test where that PostgreSQL cannot be had.
func binariesFor(t testing.TB, ctx context.Context, major int) localdev.Binaries {
	t.Helper()
	if major == 0 {
		asked, err := askedMajors()
		if err != nil {
			t.Fatal(err)
		}
		if len(asked) > 0 {
			major = asked[0]
		}
	}
	binaries, err := localdev.Find(ctx, localConfig(), major)
	if errors.Is(err, localdev.ErrNotFound) && mayFetch() {
		binaries, err = localdev.Ensure(ctx, localConfig(), major, nil)
	}
	if err != nil {
		what := "PostgreSQL"
		if major != 0 {
			what = fmt.Sprintf("PostgreSQL %d", major)
		}
		Skip(t, t.Name()+" on "+what, err.Error())
	}
	return binaries
}
