package environment

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"walrelay/internal/postgres"
	"walrelay/test/harness"
	"walrelay/test/integration/fixture"
)

// A trigger of somebody else's refuses the mark of one row. The row is on Kafka and cannot be settled,
// however often it is tried: the relay says so and ends, having published nothing twice, and goes on
// where it stood when the trigger is gone.
func TestTriggerRefusesTheMark(t *testing.T) {
	t.Parallel()
	for _, after := range []string{"mark", "delete"} {
		t.Run(after, func(t *testing.T) {
			t.Parallel()
			f := fixture.New(t, fixture.Set("RELAY_AFTER_PUBLISH", after))
			f.DB.Exec(t, `CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN IF OLD.aggregate_id = ''2'' THEN RAISE ''not this one''; END IF;
				IF TG_OP = ''DELETE'' THEN RETURN OLD; END IF; RETURN NEW; END';
				CREATE TRIGGER refuse BEFORE UPDATE OR DELETE ON outbox FOR EACH ROW EXECUTE FUNCTION refuse()`)
			r := f.Relay(t).Ready(t)
			f.DB.Exec(t, `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) SELECT 'Order', n::text, 'created', '{}' FROM generate_series(1, 3) n`)
			err := r.Wait(t)
			var mode *postgres.ModeError
			if !errors.As(err, &mode) || !strings.Contains(err.Error(), "not this one") {
				t.Errorf("the relay ended with %v", err)
			}
			if n := len(f.Events(t, 3)); n != 3 {
				t.Errorf("%d records of 3 events", n)
			}
			f.DB.Exec(t, "DROP TRIGGER refuse ON outbox")
			again := f.Relay(t).Ready(t)
			f.Settled(t)
			again.Stop(t)
		})
	}
}

// SIGTERM ends the relay at once and in order in whatever it waits for.
func TestSIGTERMWhileWaiting(t *testing.T) {
	t.Parallel()
	for name, hold := range map[string]struct {
		until func(t *testing.T, f *fixture.Fixture) // leaves the relay nothing to do but wait
		said  string                                 // what it logs before it waits
		alone bool                                   // on a server of its own
	}{
		"for PostgreSQL": {func(t *testing.T, f *fixture.Fixture) {
			f.Setenv("DATABASE_URL", "postgres://postgres@127.0.0.1:1/x?sslmode=disable")
		}, "session ended", false},
		"for an answer of PostgreSQL": {func(t *testing.T, f *fixture.Fixture) {
			proxy := harness.NewProxy(t)
			conn := f.DB.Connect(t)
			proxy.To(fmt.Sprintf("%s:%d", conn.Config().Host, conn.Config().Port))
			proxy.Pause()
			f.Setenv("DATABASE_URL", "postgres://postgres@"+proxy.Addr()+"/"+f.DB.Name+"?sslmode=disable")
		}, "kafka reachable", false},
		"for Kafka": {func(t *testing.T, f *fixture.Fixture) {
			f.Setenv("KAFKA_BROKERS", "127.0.0.1:1")
		}, `"msg":"streaming"`, false},
		"for the leader to go": {func(t *testing.T, f *fixture.Fixture) {
			f.Relay(t).Ready(t)
		}, "standby", false},
		"for a transaction that blocks the slot": {func(t *testing.T, f *fixture.Fixture) {
			conn := f.DB.Connect(t)
			for _, sql := range []string{"BEGIN", "CREATE TABLE blocks (n int)"} {
				if _, err := conn.Exec(t.Context(), sql); err != nil {
					t.Fatal(err)
				}
			}
		}, "creating slot", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := harness.Postgres(t)
			if hold.alone {
				server = harness.Fresh(t, harness.NoSync())
			}
			f := fixture.New(t, fixture.On(server))
			hold.until(t, f)
			b := f.Binary(t)
			awaitLog(t, b, hold.said)
			began := time.Now()
			b.Stop(t)
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("it took %v", took)
			}
			if got := f.DB.Text(t, "SELECT count(*) FROM pg_replication_slots WHERE slot_name = '"+f.Slot+"'"); hold.alone && got != "0" {
				t.Error("a slot that was never used is left behind")
			}
		})
	}
}

func awaitLog(t *testing.T, b *fixture.Binary, text string) {
	t.Helper()
	limit := time.After(fixture.Limit)
	for !strings.Contains(b.Log(), text) {
		select {
		case <-time.After(10 * time.Millisecond): // a log is looked at, it does not call
		case <-limit:
			t.Fatalf("walrelay never logged %q", text)
		}
	}
}
