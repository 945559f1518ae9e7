package environment

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"walrelay/test/harness"
	"walrelay/test/integration/fixture"
)

// Whatever libpq takes to say where a server is and how to get in, both connections follow: the one that
// streams and the one that settles.
func TestConnectsAsLibpqDoes(t *testing.T) {
	t.Parallel()
	server, authority := secured(t)
	base, err := url.Parse(server.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	client := authority.Issue(t, "bycert", time.Now().Add(time.Hour))
	dir := t.TempDir()
	write := func(name, format string, args ...any) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, fmt.Appendf(nil, format, args...), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	host, port := base.Hostname(), base.Port()
	verify := "sslmode=verify-full&sslrootcert=" + authority.File
	passfile := write("passfile", "%s:%s:*:relay:pass w\\:rd\n", host, port)
	const password = "pass w:rd"

	for name, c := range map[string]struct {
		env map[string]string // {db} is the database's name
		tls bool
	}{
		"client certificate": {map[string]string{"DATABASE_URL": "postgres://bycert@" + base.Host + "/{db}?" + verify + "&sslcert=" + client.CertFile + "&sslkey=" + client.KeyFile}, true},
		"passfile":           {map[string]string{"DATABASE_URL": "postgres://relay@" + base.Host + "/{db}?" + verify + "&passfile=" + passfile}, true},
		"keywords":           {map[string]string{"DATABASE_URL": "host=" + host + " port=" + port + " user=relay password='" + password + "' dbname={db} sslmode=require"}, true},
		"several hosts":      {map[string]string{"DATABASE_URL": "postgres://relay:" + url.PathEscape(password) + "@127.0.0.1:1," + base.Host + "/{db}?" + verify + "&target_session_attrs=read-write"}, true},
		"unix socket":        {map[string]string{"DATABASE_URL": strings.Replace(server.SocketURL("postgres"), "/postgres?", "/{db}?", 1)}, false},
		"variables": {map[string]string{"PGHOST": host, "PGPORT": port, "PGUSER": "relay", "PGPASSWORD": password, "PGDATABASE": "{db}",
			"PGSSLMODE": "verify-full", "PGSSLROOTCERT": authority.File, "PGTZ": "Asia/Tokyo", "PGAPPNAME": "other"}, true},
		"PGPASSFILE": {map[string]string{"PGHOST": host, "PGPORT": port, "PGUSER": "relay", "PGPASSFILE": passfile, "PGDATABASE": "{db}", "PGSSLMODE": "require"}, true},
		"service": {map[string]string{"PGSERVICE": "outbox", "PGDATABASE": "{db}",
			"PGSERVICEFILE": write("services", "[outbox]\nhost=%s\nport=%s\nuser=relay\npassword=%s\nsslmode=verify-full\nsslrootcert=%s\n", host, port, password, authority.File)}, true},
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			f := fixture.New(t, fixture.On(server))
			f.DB.Exec(t, `DO $$ BEGIN CREATE ROLE relay LOGIN REPLICATION PASSWORD 'pass w:rd'; CREATE ROLE bycert LOGIN REPLICATION; EXCEPTION WHEN duplicate_object THEN END $$`)
			f.DB.Exec(t, "GRANT SELECT, UPDATE ON outbox TO relay, bycert")
			f.Setenv("DATABASE_URL", "")
			for name, value := range c.env {
				f.Setenv(name, strings.ReplaceAll(value, "{db}", f.DB.Name))
			}
			r := f.Binary(t).Ready(t)
			f.DB.Exec(t, `INSERT INTO outbox (aggregate_type, aggregate_id, event_type) VALUES ('Order', '42', 'OrderCreated')`)
			record := f.Events(t, 1)[0]
			for _, h := range record.Headers {
				if h.Key == "created_at" && !strings.HasSuffix(string(h.Value), "Z") {
					t.Errorf("created_at is %s", h.Value)
				}
			}
			const mine = "FROM pg_stat_activity JOIN pg_stat_ssl USING (pid) WHERE application_name = 'walrelay' AND datname = "
			if got := f.DB.Text(t, "SELECT count(*) "+mine+"'"+f.DB.Name+"'"); got != "2" {
				t.Errorf("%s connections, want 2", got)
			}
			if got := f.DB.Text(t, "SELECT bool_and(ssl) "+mine+"'"+f.DB.Name+"'"); got != fmt.Sprint(c.tls)[:1] {
				t.Errorf("by TLS: %s, want %v", got, c.tls)
			}
			f.Settled(t)
			r.Stop(t)
			if strings.Contains(r.Log(), password) {
				t.Error("the password was printed")
			}
		})
	}
	for name, c := range map[string]struct{ parameters, want string }{
		"wrong authority":    {"sslmode=verify-full&sslrootcert=" + harness.NewAuthority(t, "a stranger").File, "unknown authority"},
		"verified by itself": {"sslmode=verify-ca&sslrootcert=" + harness.NewAuthority(t, "a stranger").File, "unknown authority"},
		"wrong name":         {verify + "&host=localhost", "localhost"},
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			f := fixture.New(t, fixture.On(server))
			f.Setenv("DATABASE_URL", "postgres://relay:secret@"+base.Host+"/"+f.DB.Name+"?"+c.parameters)
			r := f.Binary(t)
			if code := r.Code(t); code != 1 {
				t.Errorf("exit code %d, want 1", code)
			}
			lines := strings.Split(strings.TrimSpace(r.Log()), "\n")
			message := lines[len(lines)-1]
			t.Log(message)
			for _, piece := range []string{"walrelay: the certificate of PostgreSQL at ", c.want, "sslrootcert in DATABASE_URL"} {
				if !strings.Contains(message, piece) {
					t.Errorf("no %q in: %s", piece, message)
				}
			}
		})
	}
}
