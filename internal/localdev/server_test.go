package localdev

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// anyServer starts a server from what this machine has; only make test fetches one.
func anyServer(t *testing.T, opts Options) *Server {
	t.Helper()
	binaries := anyBinaries(t)
	opts.Binaries = binaries
	begin := time.Now()
	s, err := New(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s answered after %s", binaries, time.Since(begin).Round(time.Millisecond))
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func anyBinaries(t *testing.T) Binaries {
	t.Helper()
	if testing.Short() {
		t.Skip("starts a server: not with -short")
	}
	cfg := Config{Bin: os.Getenv("PG_BIN"), Repository: os.Getenv("PG_REPOSITORY"), Cache: os.Getenv("WALRELAY_CACHE")}
	binaries, err := Find(t.Context(), cfg, 0)
	if errors.Is(err, ErrNotFound) && os.Getenv("HARNESS_FETCH") != "" {
		binaries, err = Ensure(t.Context(), cfg, 0, nil)
	}
	if errors.Is(err, ErrNotFound) {
		t.Skip("no PostgreSQL is installed: make test fetches one")
	}
	if err != nil {
		t.Fatal(err)
	}
	return binaries
}

func query(t *testing.T, url, sql string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	var got string
	if err := conn.QueryRow(ctx, sql).Scan(&got); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return got
}

func run(t *testing.T, url, sql string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func TestServerAnswersOverTCPAndSocket(t *testing.T) {
	s := anyServer(t, Options{Settings: map[string]string{"work_mem": "7MB"}})
	for _, url := range []string{s.URL("postgres"), s.SocketURL("postgres")} {
		for setting, want := range map[string]string{
			"wal_level": "logical", "max_replication_slots": "20", "max_wal_senders": "20", "fsync": "on",
			"max_prepared_transactions": "10", "shared_buffers": "128MB", "work_mem": "7MB",
		} {
			if got := query(t, url, "SHOW "+setting); got != want {
				t.Errorf("%s = %s, want %s", setting, got, want)
			}
		}
	}
}

// The server keeps its data and its port over every way to stop it.
func TestServerComesBack(t *testing.T) {
	s := anyServer(t, Options{})
	url := s.URL("postgres")
	run(t, url, "CREATE TABLE kept (n int)")
	for i, stop := range []func() error{
		func() error { return s.Restart(t.Context(), Fast) },
		func() error { return s.Restart(t.Context(), Immediate) },
		func() error { return s.Restart(t.Context(), Smart) },
		func() error {
			if err := s.Kill(); err != nil {
				return err
			}
			return s.Start(t.Context())
		},
	} {
		run(t, url, "INSERT INTO kept VALUES (1)")
		begin := time.Now()
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		t.Logf("way %d: back after %s", i, time.Since(begin).Round(time.Millisecond))
	}
	if got := query(t, url, "SELECT count(*)::text FROM kept"); got != "4" {
		t.Errorf("%s rows, want 4", got)
	}
	if err := s.Start(t.Context()); err == nil {
		t.Error("started twice")
	}
}

// A smart shutdown waits for a client for ever; Stop does not.
func TestStopIsBounded(t *testing.T) {
	s := anyServer(t, Options{})
	conn, err := pgx.Connect(t.Context(), s.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	err = s.Stop(ctx, Smart)
	if err == nil || !strings.Contains(err.Error(), "smart") {
		t.Errorf("Stop says %v", err)
	}
	if !s.Running() {
		t.Error("the server is gone although a client was connected")
	}
}

func TestConfigureTakesEffectAtTheNextStart(t *testing.T) {
	s := anyServer(t, Options{})
	s.Configure(map[string]string{"wal_level": "replica"})
	if err := s.Restart(t.Context(), Fast); err != nil {
		t.Fatal(err)
	}
	if got := query(t, s.URL("postgres"), "SHOW wal_level"); got != "replica" {
		t.Errorf("wal_level = %s", got)
	}
}

// A default is a default: ALTER SYSTEM goes first, as on any server.
func TestAlterSystemGoesBeforeTheDefaults(t *testing.T) {
	s := anyServer(t, Options{})
	run(t, s.URL("postgres"), "ALTER SYSTEM SET max_slot_wal_keep_size = '1MB'")
	if err := s.Restart(t.Context(), Fast); err != nil {
		t.Fatal(err)
	}
	if got := query(t, s.URL("postgres"), "SHOW max_slot_wal_keep_size"); got != "1MB" {
		t.Errorf("max_slot_wal_keep_size = %s", got)
	}
}

func TestBadSettingFailsWithTheServersOwnWords(t *testing.T) {
	binaries := anyBinaries(t)
	parent := openFolder(t)
	begin := time.Now()
	_, err := New(t.Context(), Options{Binaries: binaries, Parent: parent, Settings: map[string]string{"wal_level": "nonsense"}})
	if err == nil || !strings.Contains(err.Error(), "nonsense") {
		t.Errorf("New says %v", err)
	}
	t.Logf("failed after %s", time.Since(begin).Round(time.Millisecond))
	left, err := os.ReadDir(parent)
	if err != nil || len(left) != 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}
