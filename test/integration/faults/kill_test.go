package faults

import (
	"flag"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"walrelay/test/harness/oracle"
	"walrelay/test/integration/fixture"
)

var kills = flag.Int("kills", 5, "how often TestKillNineLoop kills the relay")

// kill -9 while events are at every stage between the slot and the mark, again and again. What was
// not confirmed comes again; nothing is lost and no key's order changes.
func TestKillNineLoop(t *testing.T) {
	t.Parallel()
	f := fixture.New(t)
	b := f.Binary(t).Ready(t)
	load := f.StartLoad(t, oracle.Load{Rows: 3, Pause: time.Millisecond})
	for range *kills {
		moreEvents(t, f, 300) // it is in the middle of its work
		b.Kill(t)
		b = f.Binary(t)
	}
	b.Ready(t)
	committed := load.Stop()
	f.Settled(t)
	b.Stop(t)
	v := f.Verify(t, committed)
	t.Logf("kills %d, written %d, lost %d, repeated %d", *kills, len(committed), len(v.Lost), v.Duplicates)
}

// moreEvents waits until n more records are on Kafka.
func moreEvents(t *testing.T, f *fixture.Fixture, n int) {
	t.Helper()
	seen := len(f.Consumer(t).Records())
	_, err := f.Consumer(t).Until(fixture.Within(t, fixture.Limit), func(all []*kgo.Record) bool { return len(all) >= seen+n })
	if err != nil {
		t.Fatal(err)
	}
}

// A relay that is stopped in order repeats nothing: it ends between two transactions, and the next one
// goes on there.
func TestStopAndStartUnderLoad(t *testing.T) {
	t.Parallel()
	f := fixture.New(t)
	b := f.Binary(t).Ready(t)
	load := f.StartLoad(t, oracle.Load{Rows: 5, Pause: time.Millisecond})
	for range 10 {
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

// A relay that was stopped by SIGSTOP for a moment goes on where it was.
func TestPausedRelay(t *testing.T) {
	t.Parallel()
	f := fixture.New(t)
	b := f.Binary(t).Ready(t)
	load := f.StartLoad(t, oracle.Load{Pause: time.Millisecond})
	f.Events(t, 100)
	b.Pause(t)
	// The server notices the silence: nothing that was sent meanwhile is confirmed.
	f.DB.Eventually(fixture.Within(t, fixture.Limit), t, "t",
		"SELECT reply_time < clock_timestamp() - interval '3 s' FROM pg_stat_replication r JOIN pg_replication_slots s ON s.active_pid = r.pid WHERE s.slot_name = '"+f.Slot+"'")
	b.Continue(t)
	committed := load.Stop()
	f.Settled(t)
	b.Stop(t)
	if v := f.Verify(t, committed); v.Duplicates > 0 {
		t.Errorf("%d events were published twice", v.Duplicates)
	}
}

// Two relays of one table: one works, the other waits for the lock and goes on where kill -9 ended
// the first.
func TestStandbyTakesOver(t *testing.T) {
	t.Parallel()
	f := fixture.New(t)
	leader := f.Binary(t).Ready(t)
	load := f.StartLoad(t, oracle.Load{Pause: time.Millisecond})
	standby := f.Relay(t)
	standby.Await(t, "standby: another relay holds the lock")
	standby.Ready(t) // a standby is well
	f.Events(t, 200)
	if n := standby.Metric(t, "walrelay_rows_received_total"); n != 0 {
		t.Errorf("the standby has read %v rows beside the leader", n)
	}
	leader.Kill(t)
	standby.Await(t, "streaming")
	committed := load.Stop()
	f.Settled(t)
	standby.Stop(t)
	v := f.Verify(t, committed)
	t.Logf("written %d, lost %d, repeated %d", len(committed), len(v.Lost), v.Duplicates)
}
