package faults

import (
	"testing"
	"time"

	"walrelay/internal/localdev"
	"walrelay/test/harness"
	"walrelay/test/harness/oracle"
	"walrelay/test/integration/fixture"
)

// An administrator ends the connections of the relay, one kind and then the other, under load. What
// was acknowledged is not sent again: the next session carries the position over.
func TestConnectionsAreTerminated(t *testing.T) {
	t.Parallel()
	f := fixture.New(t)
	r := f.Relay(t).Ready(t)
	load := f.StartLoad(t, oracle.Load{Rows: 3, Pause: time.Millisecond})
	walsender := "application_name = 'walrelay' AND backend_type = 'walsender'"
	client := "application_name = 'walrelay' AND backend_type = 'client backend'"
	for _, which := range []string{walsender, client, walsender + " OR " + client, walsender} {
		moreEvents(t, f, 300)
		// Both connections are there again: what is ended is a session that streams.
		f.DB.Eventually(fixture.Within(t, fixture.Limit), t, "2",
			"SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'walrelay'")
		if n := f.DB.Text(t, "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = current_database() AND ("+which+")"); n == "0" {
			t.Errorf("no connection was ended: %s", which)
		}
	}
	moreEvents(t, f, 300)
	committed := load.Stop()
	f.Settled(t)
	r.Stop(t)
	if n := r.Reconnects(t); n < 3 {
		t.Errorf("%d sessions were ended", n)
	}
	if v := f.Verify(t, committed); v.Duplicates > 0 {
		t.Errorf("%d events were published twice", v.Duplicates)
	}
}

// PostgreSQL is restarted under load, in order and as in a crash.
func TestPostgresRestart(t *testing.T) {
	for _, mode := range []localdev.Mode{localdev.Fast, localdev.Immediate} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			s := harness.Fresh(t)
			f := fixture.New(t, fixture.On(s))
			r := f.Relay(t).Ready(t)
			load := f.StartLoad(t, oracle.Load{Rows: 3, Pause: time.Millisecond})
			for range 2 {
				moreEvents(t, f, 300)
				if err := s.Control().Stop(fixture.Within(t, fixture.Limit), mode); err != nil {
					t.Fatal(err)
				}
				if err := s.Control().Start(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			moreEvents(t, f, 300)
			committed := load.Stop()
			f.Settled(t)
			r.Stop(t)
			if v := f.Verify(t, committed); v.Duplicates > 0 {
				t.Errorf("%d events were published twice by one process", v.Duplicates)
			}
		})
	}
}

// await asks every 10 ms until it is so.
func await(t *testing.T, what string, so func() bool) {
	t.Helper()
	ctx := fixture.Within(t, fixture.Limit)
	for !so() {
		select {
		case <-ctx.Done():
			t.Fatalf("waited in vain until %s", what)
		case <-time.After(10 * time.Millisecond):
		}
	}
}
