// Package compare runs "walrelay compare" against real servers.
package compare

import (
	"encoding/json"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"walrelay/internal/compare"
	"walrelay/test/integration/fixture"
)

func TestMain(m *testing.M) { os.Exit(fixture.Run(m)) }

// leftovers counts what compare makes in PostgreSQL.
const leftovers = `SELECT (SELECT count(*) FROM pg_class WHERE relname LIKE 'walrelay_compare%') + (SELECT count(*) FROM pg_proc WHERE proname LIKE 'walrelay_compare%')
	+ (SELECT count(*) FROM pg_publication WHERE pubname LIKE 'walrelay_compare%') + (SELECT count(*) FROM pg_replication_slots WHERE slot_name LIKE 'walrelay_compare%' AND database = current_database())
	+ (SELECT count(*) FROM pg_class WHERE relname = 'walrelay_migrations')`

func environ(f *fixture.Fixture) []string {
	return []string{"DATABASE_URL=" + f.DB.URL(), "KAFKA_BROKERS=" + f.Kafka.Brokers(), "HOME=" + os.TempDir()}
}

// Every mode has all of its events at every station, whatever the environment says of the outbox in use, and
// nothing of it stays.
func TestCompare(t *testing.T) {
	f := fixture.New(t, fixture.Bare())
	page := filepath.Join(t.TempDir(), "report.html")
	env := append(environ(f), "OUTBOX_TABLE=sales.events", "OUTBOX_COLUMN_ID=seq", "OUTBOX_COLUMN_PUBLISHED_AT=sent_at", "RELAY_AFTER_PUBLISH=delete", "RELAY_MODE=polling")
	b := fixture.Command(t, env, "compare", "--for", "2s", "--rate", "100", "--per-tx", "2", "--json", page+".json", "--html", page)
	if code := b.Code(t); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	text, err := os.ReadFile(page + ".json")
	if err != nil {
		t.Fatal(err)
	}
	var r compare.Report
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}
	if len(r.Modes) != 3 || len(r.LeftOut) > 0 {
		t.Fatalf("modes %v, left out %v", r.Modes, r.LeftOut)
	}
	for _, m := range r.Modes {
		for _, s := range m.Spans {
			if s.N != int64(m.Events) || m.Events != 200 {
				t.Errorf("%s, %s: %d of %d events, want 200", m.Mode, s.Name, s.N, m.Events)
			}
		}
		if m.Cost.Updated < 0.99 || m.Cost.WAL <= 0 || m.Cost.Transactions < 0.5 {
			t.Errorf("%s costs %+v", m.Mode, m.Cost)
		}
	}
	if html, err := os.ReadFile(page); err != nil || !strings.Contains(string(html), "polling") {
		t.Errorf("the page: %v", err)
	}
	gone(t, f)
}

// Ctrl-C in the middle leaves nothing.
func TestInterrupted(t *testing.T) {
	f := fixture.New(t, fixture.Bare())
	b := fixture.Command(t, environ(f), "compare", "--for", "1m")
	f.DB.Eventually(fixture.Within(t, fixture.Limit), t, "1", "SELECT count(*) FROM pg_replication_slots WHERE slot_name LIKE 'walrelay_compare%' AND database = current_database() AND active")
	b.Terminate(t)
	if code := b.Code(t); code != 1 || !strings.Contains(b.Log(), "dropped again") {
		t.Errorf("exit code %d:\n%s", code, b.Log())
	}
	gone(t, f)
}

// A mode that the server does not have is left out; a user who may not create a table is told what to
// type.
func TestRights(t *testing.T) {
	f := fixture.New(t, fixture.Bare())
	role := f.Slot + "_compare"
	f.DB.Exec(t, "CREATE ROLE "+role+" LOGIN")
	defer func() { f.DB.Exec(t, "DROP OWNED BY "+role+"; DROP ROLE "+role) }()
	f.DB.Exec(t, "REVOKE CREATE ON SCHEMA public FROM PUBLIC") // as PostgreSQL 15 and later
	u, err := url.Parse(f.DB.URL())
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.User(role)
	env := append(environ(f), "DATABASE_URL="+u.String())
	b := fixture.Command(t, env, "compare", "--for", "1s")
	if code := b.Code(t); code != 1 || !strings.Contains(b.Log(), `GRANT CREATE ON SCHEMA "public" TO "`+role+`"`) {
		t.Errorf("exit code %d:\n%s", code, b.Log())
	}
	f.DB.Exec(t, "GRANT CREATE ON SCHEMA public TO "+role)
	b = fixture.Command(t, env, "compare", "--for", "1s", "--modes", "wal,polling")
	if code := b.Code(t); code != 0 || !strings.Contains(b.Log(), "wal is left out: the user of DATABASE_URL has no REPLICATION right") {
		t.Errorf("exit code %d:\n%s", code, b.Log())
	}
	gone(t, f)
}

// gone fails the test where something is left. A topic is deleted a moment after it was asked for.
func gone(t *testing.T, f *fixture.Fixture) {
	t.Helper()
	if n := f.DB.Text(t, leftovers); n != "0" {
		t.Errorf("%s objects are left in PostgreSQL", n)
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(f.Kafka.Brokers(), ",")...))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	limit := time.After(fixture.Limit)
	for {
		topics, err := kadm.NewClient(client).ListTopics(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		left := 0
		for _, name := range topics.Names() {
			if strings.HasPrefix(name, "walrelay.compare.") {
				left++
			}
		}
		if left == 0 {
			return
		}
		select {
		case <-limit:
			t.Fatalf("%d topics are left", left)
		case <-time.After(20 * time.Millisecond):
		}
	}
}
