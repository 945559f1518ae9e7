package faults

import (
	"testing"
	"time"

	"walrelay/test/harness"
	"walrelay/test/harness/oracle"
	"walrelay/test/integration/fixture"
)

// outage is how long the broker is away.
const outage = 20 * time.Second

// The broker crashes under load, stays away for 20 seconds and comes back. The relay says that it is
// not ready, holds what it may and leaves the rest in PostgreSQL.
func TestBrokerAway(t *testing.T) {
	t.Parallel()
	k := harness.OwnKafka(t)
	f := fixture.New(t, fixture.To(k))
	r := f.Relay(t).Ready(t)
	load := f.StartLoad(t, oracle.Load{Rows: 3, Pause: 5 * time.Millisecond})
	moreEvents(t, f, 300)
	k.Kill(t)
	back := time.After(outage)
	await(t, "the relay notices", func() bool { return r.Relay.Ready() != nil })
	<-back
	k.Start(t)
	r.Ready(t)
	moreEvents(t, f, 300)
	committed := load.Stop()
	f.Settled(t)
	r.Stop(t)
	v := f.Verify(t, committed)
	t.Logf("written %d, lost %d, repeated %d, sessions ended %d", len(committed), len(v.Lost), v.Duplicates, r.Reconnects(t))
}
