package environment

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"walrelay/test/harness"
	"walrelay/test/harness/oracle"
	"walrelay/test/integration/fixture"
)

// While somebody else holds the table, as VACUUM FULL and ALTER TABLE do, nothing can be settled, and
// the look at the server, which on PostgreSQL 16 and later opens the table to print what the
// publication holds, has to wait as well. The stream lives on.
func TestLockedTable(t *testing.T) {
	oldestAndNewest(t, func(t *testing.T, s *harness.Server) {
		f := fixture.New(t, fixture.On(s))
		r := f.Relay(t).Ready(t)
		w := f.Writer(t)
		write(t, w, 10)
		f.Events(t, 10)
		f.Settled(t)
		holder := f.DB.Connect(t)
		lock(t, holder, f, "ACCESS EXCLUSIVE")
		time.Sleep(8 * time.Second) // a look at the server is due after five, and gives up after two more
		if err := r.Relay.Ready(); err != nil {
			t.Errorf("not ready while the table is locked: %v", err)
		}
		if n := r.Reconnects(t); n > 0 {
			t.Errorf("%d sessions have ended", n)
		}
		if _, err := holder.Exec(t.Context(), "ROLLBACK"); err != nil {
			t.Fatal(err)
		}
		write(t, w, 10)
		f.Events(t, 20)
		f.Settled(t)
		r.Stop(t)
		if v := f.Verify(t, w.Committed()); v.Duplicates > 0 {
			t.Errorf("%d events were published twice", v.Duplicates)
		}
	})
}

// Rows that were committed before the lock are published while it is held, and settled after it.
func TestStartWhileTheTableIsLocked(t *testing.T) {
	oldestAndNewest(t, func(t *testing.T, s *harness.Server) {
		f := fixture.New(t, fixture.On(s))
		f.Relay(t).Ready(t).Stop(t) // the slot
		w := f.Writer(t)
		write(t, w, 10)
		holder := f.DB.Connect(t)
		lock(t, holder, f, "SHARE")
		r := f.Relay(t).Ready(t)
		f.Events(t, 10)
		if got := f.DB.Text(t, "SELECT count(*) FROM outbox WHERE published_at IS NOT NULL"); got != "0" {
			t.Errorf("%s rows were marked while the table was locked", got)
		}
		if _, err := holder.Exec(t.Context(), "ROLLBACK"); err != nil {
			t.Fatal(err)
		}
		f.Settled(t)
		r.Stop(t)
		if v := f.Verify(t, w.Committed()); v.Duplicates > 0 || r.Reconnects(t) > 0 {
			t.Errorf("%d events were published twice, %d reconnects", v.Duplicates, r.Reconnects(t))
		}
	})
}

func lock(t *testing.T, conn *pgx.Conn, f *fixture.Fixture, mode string) {
	t.Helper()
	for _, sql := range []string{"BEGIN", "LOCK TABLE " + f.Table.SQL() + " IN " + mode + " MODE"} {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
}

// write commits n events one by one.
func write(t *testing.T, w *oracle.Writer, n int) {
	t.Helper()
	for range n {
		if err := w.Commit(t.Context(), oracle.Event{AggregateType: "Order", AggregateID: "1", EventType: "created", Payload: "{}"}); err != nil {
			t.Fatal(err)
		}
	}
}
