//go:build linux

package histories

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"walrelay/test/harness/oracle"
	"walrelay/test/integration/fixture"
)

const (
	window      = 16384    // rows that may be handed over and not settled, as replication has it
	memoryLimit = 64 << 20 // RELAY_MEMORY_LIMIT's default
)

// H17: somebody locks the table, so that nothing can be marked, with more rows to publish than the relay may
// have on its way. It must stop reading, in bounded memory, and go on afterwards.
func TestH17TableLockedUnderLoad(t *testing.T) {
	t.Parallel()
	f := fixture.New(t)
	f.Binary(t).Ready(t).Stop(t) // it leaves the slot
	backlog := writeMany(t, f, 3*window)
	unlock := lock(t, f)
	load := f.StartLoad(t, oracle.Load{Writers: 2, Pause: time.Millisecond}) // waits for the lock
	b := f.Binary(t).Ready(t)
	before := confirmed(t, f)

	tries := map[string]bool{}
	eventually(t, "the window is full and marking was tried three times", func() bool {
		s := b.Status(t)
		if n := s.InFlight + s.Unsettled; n > window {
			t.Fatalf("bounded memory: %d rows are on their way, more than %d", n, window)
		}
		tries[f.DB.Text(t, `SELECT coalesce((SELECT query_start::text FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '/* walrelay:settle%'), '')`)] = true
		delete(tries, "")
		return s.Unsettled == window && len(tries) >= 3
	})
	if peak := fixture.PeakMemory(b.Pid()); peak > memoryLimit {
		t.Errorf("bounded memory: %d bytes were resident, more than %d", peak, memoryLimit)
	}
	if now := confirmed(t, f); now != before {
		t.Errorf("no early ack: the position moved from %s to %s, and no row is marked", before, now)
	}

	unlock()
	f.DB.Eventually(fixture.Within(t, fixture.Limit), t, "t", fmt.Sprintf("SELECT count(*) > %d FROM outbox", len(backlog)))
	all := append(backlog, load.Stop()...)
	f.Settled(t)
	b.Stop(t)
	if v := f.Verify(t, all); v.Duplicates > 0 {
		t.Errorf("bounded duplicates: %d without a crash", v.Duplicates)
	}
}

// H17: a row of 64 MB, which no Kafka takes, must not have to fit into memory. The relay ends by its
// name; given up, it holds up nothing.
func TestH17HugeRow(t *testing.T) {
	t.Parallel()
	f := fixture.New(t)
	w := f.Writer(t)
	b := f.Binary(t).Ready(t)
	commit(t, w, order("before"))
	f.Events(t, 1)
	huge := newEventID()
	ctx := fixture.Within(t, fixture.Limit)
	if _, err := f.DB.Connect(t).Exec(ctx, `INSERT INTO outbox (event_id, aggregate_type, aggregate_id, event_type, payload)
		VALUES ($1, 'Order', 'huge', 'OrderPlaced', to_jsonb(repeat('x', 64 << 20)))`, huge); err != nil {
		t.Fatal(err)
	}
	commit(t, w, order("after"))
	peak := 0
	eventually(t, "the relay ends", func() bool {
		peak = max(peak, fixture.PeakMemory(b.Pid()))
		return !b.Running()
	})
	if code := b.Code(t); code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	contains(t, b.Log(), huge.String(), "671089") // the size in bytes: 67108864 and the rest of the row
	if peak > memoryLimit {
		t.Errorf("bounded memory: %d bytes were resident, more than %d", peak, memoryLimit)
	}
	t.Logf("at most %d KiB were resident", peak>>10)

	f.DB.Exec(t, "UPDATE outbox SET published_at = now() WHERE event_id = '"+huge.String()+"'")
	b = f.Binary(t).Ready(t)
	f.Settled(t)
	b.Stop(t)
	f.Verify(t, w.Committed())
}

// lock holds the table so that it can be read and nothing can be written or marked, until the returned
// function is called. It takes no transaction id, so that slots of other tests can be made meanwhile.
func lock(t *testing.T, f *fixture.Fixture) (unlock func()) {
	t.Helper()
	tx, err := f.DB.Connect(t).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "LOCK TABLE outbox IN EXCLUSIVE MODE"); err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// writeMany commits n rows in one transaction.
func writeMany(t *testing.T, f *fixture.Fixture, n int) []oracle.Committed {
	t.Helper()
	rows, err := f.DB.Connect(t).Query(t.Context(), `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload)
		SELECT 'Order', 'many-' || n % 100, 'OrderPlaced', jsonb_build_object('pad', repeat('x', 200)) FROM generate_series(1, $1) n
		RETURNING event_id, id, aggregate_id`, n)
	if err != nil {
		t.Fatal(err)
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (c oracle.Committed, err error) {
		err = row.Scan((*[16]byte)(&c.EventID), &c.RowID, &c.Key)
		return c, err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}
