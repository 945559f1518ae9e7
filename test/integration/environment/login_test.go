package environment

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"walrelay/internal/localdev"
	"walrelay/migrations"
	"walrelay/test/harness"
	"walrelay/test/harness/oracle"
	"walrelay/test/integration/fixture"
)

// The role that "walrelay migrate role" prints is enough for everything that the relay does, the
// creation of its slot included.
func TestLeastPrivilege(t *testing.T) {
	oldestAndNewest(t, func(t *testing.T, s *harness.Server) {
		for _, after := range []string{"mark", "delete", "keep"} {
			f := fixture.New(t, fixture.On(s), fixture.Set("RELAY_AFTER_PUBLISH", after))
			role := f.Slot + " relay"
			cfg := f.Config(t)
			sql, err := migrations.Role(migrations.Options{Table: f.Table, Columns: cfg.Outbox.Columns, Publication: cfg.Replication.Publication}, role, after)
			if err != nil {
				t.Fatal(err)
			}
			f.DB.Exec(t, sql)
			t.Cleanup(func() { dropRole(t, f.DB, role) })
			f.Setenv("DATABASE_URL", strings.Replace(f.DB.URL(), "postgres@", strings.ReplaceAll(role, " ", "%20")+"@", 1))
			r := f.Relay(t).Ready(t)
			committed := oracle.Load{Rows: 2, Until: 50}.Run(t.Context(), t, f.DB, f.Table)
			f.Events(t, len(committed))
			r.Stop(t)
			if v := f.Verify(t, committed); v.Duplicates > 0 || r.Reconnects(t) > 0 {
				t.Errorf("%s: %d events were published twice, %d reconnects", after, v.Duplicates, r.Reconnects(t))
			}
			want := map[string]string{"mark": "0", "delete": "0", "keep": "50"}[after]
			if got := f.DB.Text(t, "SELECT count(*) FROM outbox WHERE published_at IS NULL"); got != want {
				t.Errorf("%s: %s rows are not marked, want %s", after, got, want)
			}
		}
	})
}

func dropRole(t *testing.T, db *harness.Database, role string) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, db.URL())
	if err != nil {
		t.Error(err)
		return
	}
	defer conn.Close(ctx)
	quoted := pgx.Identifier{role}.Sanitize()
	if _, err := conn.PgConn().Exec(ctx, "DROP OWNED BY "+quoted+"; DROP ROLE "+quoted).ReadAll(); err != nil {
		t.Error(err)
	}
}

// Over TLS the session frames its messages out of TLS records, and its read deadlines end in the
// middle of them; the password is bound to the channel.
func TestTLS(t *testing.T) {
	t.Parallel()
	server, authority := secured(t)
	f := fixture.New(t, fixture.On(server), fixture.Set("REPLICATION_STATUS_INTERVAL", "10ms"))
	f.DB.Exec(t, "CREATE ROLE relay LOGIN REPLICATION PASSWORD 'päss w@rd'; GRANT SELECT, UPDATE ON outbox TO relay")
	f.Setenv("DATABASE_URL", strings.Replace(strings.Replace(f.DB.URL(), "postgres@", "relay:p%C3%A4ss%20w%40rd@", 1), "sslmode=disable", "sslmode=verify-full&sslrootcert="+authority.File, 1))
	r := f.Relay(t).Ready(t)
	committed := oracle.Load{Rows: 10, PayloadSize: 20000, Until: 2000}.Run(t.Context(), t, f.DB, f.Table)
	if got := f.DB.Text(t, "SELECT count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE ssl AND usename = 'relay'"); got != "2" {
		t.Errorf("%s of the relay's connections use TLS, want 2", got)
	}
	f.Settled(t)
	r.Stop(t)
	if v := f.Verify(t, committed); v.Duplicates > 0 || r.Reconnects(t) > 0 {
		t.Errorf("%d events were published twice, %d reconnects", v.Duplicates, r.Reconnects(t))
	}
}

// secured is a server that wants TLS and a password of everybody but postgres, and of role "bycert" a
// certificate.
func secured(t *testing.T) (*harness.Server, *harness.Authority) {
	t.Helper()
	server := harness.Fresh(t)
	control := server.Control()
	dir := control.Dir()
	authority := certificate(t, dir)
	hba := "local all all trust\nhost all postgres 127.0.0.1/32 trust\nhostssl all bycert 127.0.0.1/32 cert\nhostssl all all 127.0.0.1/32 scram-sha-256\n"
	if err := os.WriteFile(filepath.Join(dir, "hba.conf"), []byte(hba), 0o644); err != nil {
		t.Fatal(err)
	}
	control.Configure(map[string]string{"ssl": "on", "ssl_cert_file": filepath.Join(dir, "server.crt"), "ssl_key_file": filepath.Join(dir, "server.key"),
		"ssl_ca_file": filepath.Join(dir, "ca.crt"), "hba_file": filepath.Join(dir, "hba.conf")})
	if err := control.Restart(t.Context(), localdev.Fast); err != nil {
		t.Fatal(err)
	}
	return server, authority
}

// certificate gives a server a certificate for 127.0.0.1, in its folder, and returns who has signed it. The
// server accepts certificates of the same authority.
func certificate(t *testing.T, dir string) *harness.Authority {
	t.Helper()
	authority := harness.NewAuthority(t, "walrelay test")
	issued := authority.Issue(t, "postgres", time.Now().Add(time.Hour), "127.0.0.1")
	owner, err := os.Stat(filepath.Join(dir, "data"))
	if err != nil {
		t.Fatal(err)
	}
	for name, from := range map[string]string{"server.crt": issued.CertFile, "server.key": issued.KeyFile, "ca.crt": authority.File} {
		content, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(path, int(owner.Sys().(*syscall.Stat_t).Uid), -1); err != nil { // the server reads it, as whoever it runs
			t.Fatal(err)
		}
	}
	return authority
}
