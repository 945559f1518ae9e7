package checkpoint

import (
	"errors"
	"os"
	"testing"

	"github.com/jackc/pglogrepl"

	"walrelay/test/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Run(m)) }

// TestNoAllocationPerEvent: the whole life of a row and of its transaction, in steady state.
func TestNoAllocationPerEvent(t *testing.T) {
	c := newCycle(1024)
	if n := testing.AllocsPerRun(1000, func() { c.transaction(10) }); n != 0 {
		t.Errorf("bounded memory: %v allocations per transaction of 10 rows, want 0", n)
	}
}

// TestBoundedMemoryOfEmptyAndForeign: what is not ours takes no slot and no place in the queue, be it ten
// thousand empty transactions behind a stuck ack (H17) or a million rows of another table in one transaction.
func TestBoundedMemoryOfEmptyAndForeign(t *testing.T) {
	tracker := NewTracker(Options{Rows: 2, Settles: true, Start: 1})
	must(t, tracker.Open(1, 10))
	stuck := tracker.Add(Row{RowID: 1}, 100)
	must(t, tracker.Close(11))
	lsn := pglogrepl.LSN(20)
	for range 10_000 {
		lsn += 10
		must(t, tracker.Open(2, lsn))
		must(t, tracker.Close(lsn+5))
	}
	must(t, tracker.Open(3, lsn+10))
	for range 1_000_000 {
		tracker.Skip(1)
	}
	if rows, _ := tracker.Room(); rows != 1 {
		t.Errorf("bounded memory: room for %d rows, want 1", rows)
	}
	if n := tracker.Stats().OpenTransactions; n != 2 {
		t.Errorf("bounded memory: %d transactions are kept, want 2", n)
	}
	must(t, tracker.Done(stuck))
	if got, want := tracker.Carried().Part, (Part{XID: 3, Final: lsn + 10, Rows: 1_000_000}); got != want {
		t.Errorf("carried part %+v, want %+v", got, want)
	}
	must(t, tracker.Close(lsn+20))
	if got := tracker.Confirmable(); got != 1 {
		t.Errorf("no early ack: %s is confirmable and a row is not settled", got)
	}
	must(t, tracker.Settled(stuck))
	if got := tracker.Confirmable(); got != lsn+20 {
		t.Errorf("confirmable %s, want %s", got, lsn+20)
	}
}

// TestStaleAckHitsNothing: the slot of a settled row is used again; the old token does not acknowledge the new row.
func TestStaleAckHitsNothing(t *testing.T) {
	tracker := NewTracker(Options{Rows: 1})
	must(t, tracker.Open(1, 10))
	first := tracker.Add(Row{RowID: 1}, 1)
	must(t, tracker.Done(first))
	if rows, _ := tracker.Room(); rows != 1 {
		t.Fatalf("room for %d rows, want 1", rows)
	}
	second := tracker.Add(Row{RowID: 2}, 1)
	if err := tracker.Done(first); !errors.Is(err, ErrToken) {
		t.Errorf("a stale ack was taken: %v", err)
	}
	if tracker.InFlight() != 1 {
		t.Error("the stale ack acknowledged another row")
	}
	must(t, tracker.Done(second))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// cycle drives the whole life of rows, as the source, the promise and the settler do.
type cycle struct {
	tracker *Tracker
	lsn     pglogrepl.LSN
	tokens  []uint64
	pending []Pending
}

func newCycle(rows int) *cycle {
	tracker := NewTracker(Options{Rows: rows, Settles: true})
	tracker.NewWaiter()
	tracker.NewWaiter()
	return &cycle{tracker: tracker, tokens: make([]uint64, 0, rows), pending: make([]Pending, 0, rows)}
}

func (c *cycle) transaction(rows int) {
	c.lsn += 100
	c.tokens = c.tokens[:0]
	_ = c.tracker.Open(1, c.lsn)
	for i := range rows {
		_, _ = c.tracker.Room()
		c.tokens = append(c.tokens, c.tracker.Add(Row{RowID: int64(i)}, 300))
	}
	_ = c.tracker.Close(c.lsn + 50)
	for _, token := range c.tokens {
		_ = c.tracker.Done(token)
	}
	c.pending = c.tracker.Pending(c.pending[:0], rows)
	for _, p := range c.pending {
		_ = c.tracker.Settled(p.Token)
	}
	if c.tracker.Confirmable() != c.lsn+50 {
		panic("the cycle does not close")
	}
}

func BenchmarkTrackerRow(b *testing.B) {
	c := newCycle(1 << 15)
	b.ReportAllocs()
	for n := 0; n < b.N; n += 100 {
		c.transaction(100)
	}
}

func BenchmarkTrackerSingleRowTransaction(b *testing.B) {
	c := newCycle(1 << 15)
	b.ReportAllocs()
	for range b.N {
		c.transaction(1)
	}
}
