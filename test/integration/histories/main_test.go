// Package histories plays histories of HISTORIES.md on real servers: sequences of events that break a
// naive relay. Each test is named after the one that it plays.
package histories

import (
	"context"
	"crypto/rand"
	"errors"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"

	"walrelay/internal/postgres"
	"walrelay/outbox"
	"walrelay/relay"
	"walrelay/test/harness"
	"walrelay/test/harness/oracle"
	"walrelay/test/integration/fixture"
)

func TestMain(m *testing.M) { os.Exit(fixture.Run(m)) }

// order is an event of that key.
func order(key string) oracle.Event {
	return oracle.Event{AggregateType: "Order", AggregateID: key, EventType: "OrderPlaced", Payload: `{"key": "` + key + `"}`}
}

// commit writes one transaction, which must succeed.
func commit(t *testing.T, w *oracle.Writer, events ...oracle.Event) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), fixture.Limit)
	defer cancel()
	if err := w.Commit(ctx, events...); err != nil {
		t.Fatal(err)
	}
}

func newEventID() (id outbox.EventID) {
	rand.Read(id[:]) // never fails
	return id
}

// insertRow takes an event id and a key.
const insertRow = `INSERT INTO outbox (event_id, aggregate_type, aggregate_id, event_type, payload) VALUES ($1, 'Order', $2, 'OrderPlaced', '{}')`

// eventually asks every 10 ms.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	limit := time.After(fixture.Limit)
	for !is() {
		select {
		case <-time.After(10 * time.Millisecond):
		case <-limit:
			t.Fatalf("not within %v: %s", fixture.Limit, what)
		}
	}
}

// confirmed is what the relay has confirmed to PostgreSQL.
func confirmed(t *testing.T, f *fixture.Fixture) pglogrepl.LSN {
	t.Helper()
	return position(t, f.DB.Text(t, "SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = '"+f.Slot+"'"))
}

func position(t *testing.T, text string) pglogrepl.LSN {
	t.Helper()
	lsn, err := pglogrepl.ParseLSN(text)
	if err != nil {
		t.Fatal(err)
	}
	return lsn
}

// statuses waits until the relay has told the server its position twice more: whatever it was about
// to confirm is confirmed then.
func statuses(t *testing.T, f *fixture.Fixture) {
	t.Helper()
	sql := "SELECT (SELECT reply_time FROM pg_stat_replication JOIN pg_replication_slots ON pid = active_pid WHERE slot_name = '" + f.Slot + "')"
	for range 2 {
		before := f.DB.Text(t, sql)
		eventually(t, "another status", func() bool {
			now := f.DB.Text(t, sql)
			return now != "" && now != before
		})
	}
}

// confirmedAll waits until every row is marked and the slot has confirmed that.
func confirmedAll(t *testing.T, f *fixture.Fixture) {
	t.Helper()
	f.Settled(t)
	statuses(t, f)
}

// unmarkable lets no row be marked until the returned function is called: to the relay they all look
// locked by somebody. Nothing waits, so that slots of other tests can be made meanwhile.
func unmarkable(t *testing.T, f *fixture.Fixture) (markable func()) {
	t.Helper()
	f.DB.Exec(t, `CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE lock_not_available; END';
		CREATE TRIGGER refuse BEFORE UPDATE ON outbox FOR EACH ROW EXECUTE FUNCTION refuse()`)
	return func() {
		t.Helper()
		f.DB.Exec(t, "DROP TRIGGER refuse ON outbox")
	}
}

// through sends a relay's connections to PostgreSQL through the proxy.
func through(p *harness.Proxy, f *fixture.Fixture) fixture.Change {
	target := strings.TrimPrefix(f.DB.Server.URL("postgres"), "postgres://postgres@")
	target, _, _ = strings.Cut(target, "/")
	p.To(target)
	return func(o *relay.Options) {
		o.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, p.Addr())
		}
	}
}

// as connects a relay as another role.
func as(role string) fixture.Change {
	return func(o *relay.Options) { o.Database = strings.Replace(o.Database, "postgres@", role+"@", 1) }
}

// refusal is the mode error that the relay ended with, whose text must hold the words.
func refusal(t *testing.T, err error, words ...string) *postgres.ModeError {
	t.Helper()
	var mode *postgres.ModeError
	if !errors.As(err, &mode) {
		t.Fatalf("the relay ended with %v, want a ModeError", err)
	}
	contains(t, err.Error(), words...)
	return mode
}

func contains(t *testing.T, text string, words ...string) {
	t.Helper()
	for _, word := range words {
		if !strings.Contains(text, word) {
			t.Errorf("%q is not in %q", word, text)
		}
	}
}
