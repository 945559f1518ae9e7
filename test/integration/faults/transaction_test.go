package faults

import (
	"fmt"
	"strings"
	"testing"

	"walrelay/test/harness"
	"walrelay/test/harness/oracle"
	"walrelay/test/integration/fixture"
)

// H15: a transaction of 200,000 rows whose session dies in the middle, twice. The part that Kafka has
// acknowledged is not sent again.
func TestHugeTransaction(t *testing.T) {
	t.Parallel()
	const rows = 200_000
	f := fixture.New(t)
	b := f.Binary(t).Ready(t)
	f.DB.Exec(t, fmt.Sprintf(`INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload)
		SELECT 'Order', n %% 500, 'OrderPlaced', jsonb_build_object('n', n) FROM generate_series(1, %d) n`, rows))
	for _, seen := range []int{rows / 4, rows / 2} {
		moreEvents(t, f, seen-len(f.Consumer(t).Records()))
		f.DB.Exec(t, "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = '"+f.Slot+"' AND active")
	}
	f.Settled(t)
	b.Stop(t)
	committed := f.Rows(t)
	v := f.Verify(t, committed)
	ended := strings.Count(b.Log(), "session ended, starting another")
	t.Logf("%d rows, %d sessions ended, %d repeated", len(committed), ended, v.Duplicates)
	if len(committed) != rows || ended == 0 || v.Duplicates > 0 {
		t.Errorf("%d rows, of which %d were published twice, and %d sessions ended", len(committed), v.Duplicates, ended)
	}
}

// What was rolled back to a savepoint never appears; what stands around it does.
func TestSavepoint(t *testing.T) {
	t.Parallel()
	f := fixture.New(t)
	r := f.Relay(t).Ready(t)
	w := f.Writer(t)
	for n := range 20 {
		if err := w.Savepoint(t.Context(), events(n, 3), events(n, 2)); err != nil {
			t.Fatal(err)
		}
	}
	f.Settled(t)
	r.Stop(t)
	if v := f.Verify(t, w.Committed()); v.Duplicates > 0 {
		t.Errorf("%d events were published twice", v.Duplicates)
	}
}

func events(key, n int) []oracle.Event {
	all := make([]oracle.Event, n)
	for i := range all {
		all[i] = oracle.Event{AggregateType: "Order", AggregateID: fmt.Sprint(key), EventType: "OrderPlaced", Payload: fmt.Sprintf(`{"n": %d}`, i)}
	}
	return all
}

// The rows of a prepared transaction appear when it is committed, behind what was committed before;
// those of one that is rolled back never do. While it is pending nothing waits for it.
func TestPreparedTransaction(t *testing.T) {
	t.Parallel()
	f := fixture.New(t, fixture.On(harness.Fresh(t, harness.NoSync()))) // it would block the slots of other tests
	r := f.Relay(t).Ready(t)
	insert := "INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) SELECT 'Order', '%s', 'OrderPlaced', '{}' FROM generate_series(1, 5);"
	f.DB.Exec(t, fmt.Sprintf("BEGIN;"+insert+"PREPARE TRANSACTION 'kept'", "kept"))
	f.DB.Exec(t, fmt.Sprintf("BEGIN;"+insert+"PREPARE TRANSACTION 'dropped'", "dropped"))
	f.DB.Exec(t, fmt.Sprintf(insert, "other"))
	f.Events(t, 5)
	f.Settled(t)
	r.Stop(t) // and it is there after a restart
	r = f.Relay(t).Ready(t)
	f.DB.Exec(t, "COMMIT PREPARED 'kept'")
	f.DB.Exec(t, "ROLLBACK PREPARED 'dropped'")
	records := f.Events(t, 10)
	if key := string(records[len(records)-1].Key); key != "kept" {
		t.Errorf("the last record is of %q", key)
	}
	f.Settled(t)
	r.Stop(t)
	if v := f.Verify(t, f.Rows(t)); v.Duplicates > 0 {
		t.Errorf("%d events were published twice", v.Duplicates)
	}
}
