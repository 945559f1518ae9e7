package polling

import (
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"walrelay/internal/localdev"
	"walrelay/test/harness"
	"walrelay/test/harness/oracle"
	"walrelay/test/integration/fixture"
)

const terminate = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'walrelay' AND datname = current_database()"

// moreEvents waits until n more records are on Kafka: the relay is in the middle of its work.
func moreEvents(t *testing.T, f *fixture.Fixture, n int) {
	t.Helper()
	seen := len(f.Consumer(t).Records())
	_, err := f.Consumer(t).Until(fixture.Within(t, fixture.Limit), func(all []*kgo.Record) bool { return len(all) >= seen+n })
	if err != nil {
		t.Fatal(err)
	}
}

// kill -9 at every stage between the table and the mark.
func TestKillNine(t *testing.T) {
	t.Parallel()
	for _, after := range []string{"mark", "delete"} {
		t.Run(after, func(t *testing.T) {
			t.Parallel()
			f := polling(t, fixture.Notify(), fixture.Set("RELAY_AFTER_PUBLISH", after), fixture.Set("POLLING_BATCH_ROWS", "50"))
			b := f.Binary(t).Ready(t)
			load := f.StartLoad(t, oracle.Load{Rows: 3, Pause: time.Millisecond})
			for range 4 {
				moreEvents(t, f, 300)
				b.Kill(t)
				b = f.Binary(t)
			}
			b.Ready(t)
			committed := load.Stop()
			f.Settled(t)
			b.Stop(t)
			v := f.Verify(t, committed)
			t.Logf("written %d, lost %d, repeated %d", len(committed), len(v.Lost), v.Duplicates)
		})
	}
}

// A relay that is stopped in order repeats nothing.
func TestStopAndStart(t *testing.T) {
	t.Parallel()
	f := polling(t, fixture.Notify())
	b := f.Binary(t).Ready(t)
	load := f.StartLoad(t, oracle.Load{Rows: 3, Pause: time.Millisecond})
	for range 5 {
		moreEvents(t, f, 300)
		b.Stop(t)
		b = f.Binary(t).Ready(t)
	}
	committed := load.Stop()
	f.Settled(t)
	b.Stop(t)
	if v := f.Verify(t, committed); v.Duplicates > 0 {
		t.Errorf("%d events were published twice", v.Duplicates)
	}
}

// The server ends the relay's connection, or goes away with it.
func TestPostgresFaults(t *testing.T) {
	t.Parallel()
	s := harness.Fresh(t)
	f := polling(t, fixture.On(s), fixture.Notify())
	r := f.Relay(t).Ready(t)
	load := f.StartLoad(t, oracle.Load{Rows: 3, Pause: time.Millisecond})
	for range 3 {
		moreEvents(t, f, 200)
		f.DB.Exec(t, terminate)
	}
	for _, mode := range []localdev.Mode{localdev.Fast, localdev.Immediate} {
		moreEvents(t, f, 200)
		if err := s.Control().Restart(t.Context(), mode); err != nil {
			t.Fatal(err)
		}
	}
	moreEvents(t, f, 200)
	committed := load.Stop()
	f.Settled(t)
	r.Stop(t)
	v := f.Verify(t, committed)
	if r.Reconnects(t) < 5 {
		t.Errorf("%d reconnects, want 5", r.Reconnects(t))
	}
	t.Logf("written %d, lost %d, repeated %d", len(committed), len(v.Lost), v.Duplicates)
}

// Kafka is away for longer than the server waits for a word: the relay keeps its connection, its lock
// and the batch, and reads nothing else.
func TestKafkaAway(t *testing.T) {
	t.Parallel()
	f := polling(t, fixture.Set("POLLING_BATCH_ROWS", "100"))
	kafka := harness.NewProxy(t)
	r := f.Relay(t, f.KafkaThrough(kafka)).Ready(t)
	w := f.Writer(t)
	commit(t, w, order("1"))
	f.Settled(t)
	pid := f.DB.Text(t, leader)
	kafka.Pause()
	for range 30 {
		commit(t, w, order("1"), order("2"), order("3"), order("4"), order("5"), order("6"), order("7"), order("8"), order("9"), order("10"))
	}
	await(t, "a batch is on its way", func() bool { return r.Status().InFlight > 0 })
	f.DB.Eventually(fixture.Within(t, fixture.Limit), t, "t",
		"SELECT bool_and(query ~ 'walrelay:ping' AND state = 'idle') FROM pg_stat_activity WHERE pid = ("+leader+")")
	if n := r.Status().InFlight; n > 100 {
		t.Errorf("%d rows are in flight; a batch has 100", n)
	}
	kafka.Resume()
	f.Settled(t)
	if now := f.DB.Text(t, leader); now != pid {
		t.Errorf("the lock went from backend %s to %s", pid, now)
	}
	r.Stop(t)
	if v := f.Verify(t, w.Committed()); v.Duplicates > 0 {
		t.Errorf("%d events were published twice", v.Duplicates)
	}
}

// leader is the backend that holds the lock of the outbox table.
const leader = "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"

// One relay reads at a time, whatever its mode; a standby goes on where the leader was killed, or where
// it stands still for longer than its lease. Then what it had read is not handed over any more.
func TestTakeover(t *testing.T) {
	t.Parallel()
	for _, first := range []string{"wal", "polling", "paused"} {
		t.Run(first, func(t *testing.T) {
			t.Parallel()
			f := polling(t)
			if first == "wal" {
				f.Setenv("RELAY_MODE", "wal")
			}
			leads := f.Binary(t).Ready(t)
			load := f.StartLoad(t, oracle.Load{Pause: time.Millisecond})
			f.Setenv("RELAY_MODE", "polling")
			standby := f.Relay(t)
			standby.Await(t, "standby: another relay holds the lock")
			standby.Ready(t)
			f.Events(t, 200)
			tries := make(map[string]bool)
			// It tries once a second; one try has two beginnings at most, that of Parse and that of Execute.
			await(t, "the standby has tried the lock three times", func() bool {
				try := f.DB.Text(t, "SELECT coalesce(round(extract(epoch FROM max(query_start)))::text, '') FROM pg_stat_activity WHERE query ~ 'try_advisory_lock' AND datname = current_database() AND pid <> pg_backend_pid()")
				if try != "" {
					tries[try] = true
				}
				return len(tries) >= 5 || standby.Metric(t, "walrelay_rows_received_total") > 0
			})
			if n := standby.Metric(t, "walrelay_rows_received_total"); n != 0 {
				t.Errorf("the standby has read %v rows beside the leader", n)
			}
			if first == "paused" {
				leads.Pause(t)
			} else {
				leads.Kill(t)
			}
			standby.Await(t, "msg=polling")
			if first == "paused" {
				leads.Continue(t)
				await(t, "the one that woke has noticed", func() bool { return strings.Contains(leads.Log(), "session ended") })
				moreEvents(t, f, 200)
				leads.Stop(t)
			}
			committed := load.Stop()
			f.Settled(t)
			standby.Stop(t)
			v := f.Verify(t, committed)
			t.Logf("written %d, lost %d, repeated %d", len(committed), len(v.Lost), v.Duplicates)
		})
	}
}
