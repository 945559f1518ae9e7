package pgfake_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"walrelay/checkpoint"
	"walrelay/internal/postgres"
	"walrelay/internal/source"
	"walrelay/outbox"
	"walrelay/replication"
	"walrelay/test/pgfake"
)

// Statuses are written by the goroutine that reads the stream, and by no other: a second one would need a
// mutex that is held across a read, or would tell positions out of order.
func TestOneGoroutineOwnsTheReplicationConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := live(t, checkpoint.Mark, 17, nil)
		work(l.srv, l.net)
		time.Sleep(20 * time.Second)
		l.end(t)
		for i, c := range l.conns {
			if len(c.writers) > 1 {
				t.Errorf("connection %d: statuses were written by %d goroutines: %v", i, len(c.writers), c.writers)
			}
		}
	})
}

// A server whose SQL connection hangs in the network stops all the same: its walsender asks and asks, and the
// relay, whose Kafka does not answer, lets go of it.
func TestH24StoppingServerIsLetGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := live(t, checkpoint.Mark, 17, func(l *life, _ *replication.Options) { l.kafka.late = time.Minute })
		l.srv.Commit(row("a"))
		time.Sleep(2 * time.Second)
		sql := l.last(false).link()
		sql.Stall()
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := l.srv.Stop(ctx); err != nil {
			t.Errorf("promise %q is broken: %v", pgfake.Harmless, err)
		}
		sql.Resume()
		l.srv.Start()
		time.Sleep(2 * time.Minute)
		l.end(t)
	})
}

// frozen is a process that is stopped, as by SIGSTOP, while it hands over its first event. Its other goroutines
// stand still because nothing reaches them.
type frozen struct {
	*life
	once   sync.Once
	length time.Duration
}

func (f *frozen) Publish(ev *outbox.Event, token uint64, to source.Acker) error {
	f.once.Do(func() {
		sql := f.last(false).link()
		sql.Stall()
		time.Sleep(f.length)
		time.AfterFunc(time.Second, sql.Resume)
	})
	return f.kafka.Publish(ev, token, to)
}

func (f *frozen) Hurry()                {}
func (f *frozen) Wake() <-chan struct{} { return nil }

// A process that was stopped for longer than its own time-out finds rows in its buffer that belong to whoever
// has the slot by then. It hands over none of them.
func TestH15LeaseEndsBeforeAnotherRow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := live(t, checkpoint.Mark, 17, func(l *life, o *replication.Options) {
			o.Publisher = &frozen{life: l, length: 20 * time.Second}
		})
		l.srv.Judge().Excuse(relayHost)
		txn := l.srv.Commit(row("a"), row("b"), row("c"))
		time.Sleep(time.Minute)
		l.srv.Judge().Expect(relayHost)
		l.end(t)
		if len(l.ends) == 0 || !replication.Expired(l.ends[0]) {
			t.Errorf("sessions ended: %v", l.ends)
		}
		for i, r := range txn.Rows()[1:] {
			if n := l.kafka.seen[r.EventID]; n != 1 {
				t.Errorf("row %d was handed over %d times", i+1, n)
			}
		}
	})
}

// A server that closes connections without a word, again and again, gets more time for what it may be at.
func TestH23SilentEndsGetTheServerMoreTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := live(t, checkpoint.Mark, 17, nil)
		var timeouts []string
		for range 8 {
			l.srv.Terminate(func(c *pgfake.Conn) bool {
				if c.Replication() {
					timeouts = append(timeouts, c.Parameter("wal_sender_timeout"))
				}
				return false
			})
			l.last(true).link().Reset()
			time.Sleep(5 * time.Second)
		}
		l.end(t)
		if !slices.Contains(timeouts, "30000") || !slices.Contains(timeouts, "60000") {
			t.Errorf("wal_sender_timeout of the sessions: %v", timeouts)
		}
	})
}

// A table that is taken out of the publication ends the session before any keepalive is confirmed that was
// sent after somebody has looked (H21).
func TestH21TableLeavesThePublication(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := live(t, checkpoint.Mark, 17, nil)
		l.srv.Commit(row("a"))
		time.Sleep(2 * time.Second)
		l.srv.Publish(false)
		time.Sleep(6 * time.Second)
		slot, _ := l.srv.Slot("walrelay")
		l.srv.Commit(row("b"))
		time.Sleep(20 * time.Second)
		if now, _ := l.srv.Slot("walrelay"); now.ConfirmedFlushLSN != slot.ConfirmedFlushLSN {
			t.Errorf("promise %q is broken: %s was confirmed over a row that was not sent", pgfake.Delivered, now.ConfirmedFlushLSN)
		}
		l.srv.Publish(true)
		l.end(t)
		if len(l.ends) == 0 {
			t.Fatal("the session went on")
		}
		if _, ok := errors.AsType[*postgres.ModeError](l.ends[0]); !ok {
			t.Errorf("the session ended: %v", l.ends[0])
		}
	})
}

// A settle lives and dies with its session. The standby that is promoted here has both rows and the settle of
// neither, and the old primary's replication connection hangs in the network. Were the second row settled on
// the new primary over a connection of its own, the first would count as settled there too (the server has the
// last settle, so it must have all) and stay unmarked for ever.
func TestSettleDoesNotOutliveItsSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := live(t, checkpoint.Mark, 17, nil)
		l.srv.Commit(row("a"))
		second := l.srv.Commit(row("b"))
		l.srv.LockRow(second.Rows()[0].ID)
		standby, _ := l.srv.LSN()
		time.Sleep(time.Second)
		if n := l.srv.Unmarked(); n != 1 {
			t.Fatalf("%d rows are unmarked, want the locked one", n)
		}
		old := l.last(true).link()
		l.srv.Judge().Excuse(relayHost)
		old.Stall()
		l.srv.Promote(standby)
		l.srv.Start()
		time.Sleep(2 * time.Second)
		old.Resume()
		time.Sleep(30 * time.Second)
		l.srv.Judge().Expect(relayHost)
		if n := l.srv.Unmarked(); n > 0 {
			t.Errorf("promise %q is broken: %d rows stay unmarked", "progress", n)
		}
		l.end(t)
	})
}
