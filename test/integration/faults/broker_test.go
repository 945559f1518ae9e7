package faults

import (
	"testing"
	"time"

	"walrelay/internal/localdev"
	"walrelay/test/harness"
	"walrelay/test/harness/oracle"
	"walrelay/test/integration/fixture"
)

const (
	// outage is how long the broker is away at least.
	outage = 20 * time.Second

	// stopLimit is what a server that is asked to stop may take while Kafka is away. The relay gives
	// Kafka five seconds of it.
	stopLimit = 10 * time.Second
)

// The broker crashes, stays away for 20 seconds and more, and comes back. One relay is under load all the
// time. The servers of two others are told to stop meanwhile (H24): a walsender waits until its client has
// confirmed everything, so they have to let go. A session that reads sees the server's flood of questions;
// one whose window is full reads nothing, and learns it from its other connection.
func TestBrokerAway(t *testing.T) {
	t.Parallel()
	k := harness.OwnKafka(t)
	reading, full := newStopping(t, k), newStopping(t, k)
	f := fixture.New(t, fixture.To(k))
	r := f.Relay(t).Ready(t)
	load := f.StartLoad(t, oracle.Load{Rows: 3, Pause: 5 * time.Millisecond})
	moreEvents(t, f, 300)

	k.Kill(t)
	back := time.After(outage)
	reading.write(t, 50, 50)
	full.write(t, 40_000, 4000) // a window that is full by its bytes holds fewer rows than one that is by rows
	r.Await(t, "kafka unreachable")
	if r.Relay.Ready() == nil {
		t.Error("the relay is ready without a broker")
	}
	reading.restart(t)
	full.restart(t)
	<-back
	k.Start(t)
	r.Await(t, "kafka reachable again")

	r.Ready(t)
	moreEvents(t, f, 300)
	committed := load.Stop()
	f.Settled(t)
	r.Stop(t)
	v := f.Verify(t, committed)
	t.Logf("written %d, lost %d, repeated %d, sessions ended %d", len(committed), len(v.Lost), v.Duplicates, r.Reconnects(t))
	reading.verify(t)
	full.verify(t)
}

// stopping is a relay of a server that is told to stop while Kafka is away.
type stopping struct {
	*fixture.Fixture
	server    *harness.Server
	relay     *fixture.Relay
	committed []oracle.Committed
}

// newStopping returns when everything flows.
func newStopping(t *testing.T, k *harness.Cluster) *stopping {
	t.Helper()
	server := harness.Fresh(t, harness.NoSync())
	s := &stopping{Fixture: fixture.New(t, fixture.On(server), fixture.To(k)), server: server}
	s.relay = s.Relay(t).Ready(t)
	s.committed = oracle.Load{Until: 100}.Run(t.Context(), t, s.DB, s.Table)
	s.Events(t, 100)
	s.Settled(t)
	return s
}

// write writes rows and waits until at least so many are on their way.
func (s *stopping) write(t *testing.T, rows, inFlight int) {
	t.Helper()
	s.committed = append(s.committed, oracle.Load{Until: rows, Rows: 500}.Run(t.Context(), t, s.DB, s.Table)...)
	await(t, "rows are in flight", func() bool { return s.relay.Status().InFlight >= inFlight })
}

func (s *stopping) restart(t *testing.T) {
	t.Helper()
	n, began := s.relay.Status().InFlight, time.Now()
	if err := s.server.Control().Stop(fixture.Within(t, fixture.Limit), localdev.Fast); err != nil {
		t.Fatal(err)
	}
	took := time.Since(began)
	t.Logf("PostgreSQL stopped in %v, with %d rows in flight and Kafka away", took.Round(time.Millisecond), n)
	if took > stopLimit {
		t.Errorf("PostgreSQL took %v to stop", took)
	}
	if err := s.server.Control().Start(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func (s *stopping) verify(t *testing.T) {
	t.Helper()
	s.Settled(t)
	s.relay.Stop(t)
	if v := s.Verify(t, s.committed); v.Duplicates > 0 {
		t.Errorf("%d events were published twice by one process", v.Duplicates)
	}
}
