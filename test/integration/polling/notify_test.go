package polling

import (
	"strings"
	"testing"

	"walrelay/test/harness"
	"walrelay/test/integration/fixture"
)

// With the trigger a commit wakes the relay: the interval, a minute here, is never waited for.
func TestNotifyWakes(t *testing.T) {
	t.Parallel()
	f := polling(t, fixture.Notify(), fixture.Set("POLLING_INTERVAL", "1m"), fixture.Set("POLLING_NOTIFY", "on"))
	w := f.Writer(t)
	r := f.Relay(t).Ready(t)
	for i := range 20 {
		commit(t, w, order("1"))
		f.Events(t, i+1)
		f.Settled(t)
	}
	if st := r.Status(); !st.Notified || st.Interval != "1m0s" {
		t.Errorf("status %+v", st.Poll)
	}
	if n := r.Metric(t, "walrelay_notifications_total"); n < 20 {
		t.Errorf("%v polls were due to a notification, want 20", n)
	}
	// It wakes for what is committed while a batch is on its way, too.
	for range 200 {
		commit(t, w, order("1"))
	}
	f.Settled(t)
	r.Stop(t)
	if v := f.Verify(t, w.Committed()); v.Duplicates > 0 {
		t.Errorf("%d events were published twice", v.Duplicates)
	}
}

// Without the trigger the relay polls, and says once what would wake it; where it was told to be woken
// it refuses.
func TestNoTrigger(t *testing.T) {
	t.Parallel()
	f := polling(t)
	w := f.Writer(t)
	r := f.Relay(t).Ready(t)
	commit(t, w, order("1"))
	f.Settled(t)
	f.DB.Exec(t, "SELECT pg_terminate_backend(l.pid) FROM pg_locks l WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())")
	commit(t, w, order("1"))
	f.Settled(t)
	if n := strings.Count(r.Log(), "walrelay migrate up --notify"); n != 1 {
		t.Errorf("the remedy is said %d times in two sessions", n)
	}
	if st := r.Status(); st.Notified || r.Metric(t, "walrelay_polling_deaf") != 1 {
		t.Errorf("status %+v", st.Poll)
	}
	r.Stop(t)

	f.Setenv("POLLING_NOTIFY", "on")
	if err := f.Relay(t).Wait(t); err == nil || !strings.Contains(err.Error(), "walrelay migrate up --notify") {
		t.Errorf("the relay ended with %v", err)
	}
	f.Setenv("POLLING_NOTIFY", "off")
	r = f.Relay(t).Ready(t)
	commit(t, w, order("1"))
	f.Settled(t)
	r.Stop(t)
	if strings.Contains(r.Log(), "--notify") {
		t.Error("a relay that was told not to listen says how to")
	}
}

// An idle relay asks one question per interval and nothing else.
func TestIdlePollingAsksLittle(t *testing.T) {
	t.Parallel()
	s := harness.Fresh(t, harness.NoSync(), harness.Setting("log_statement", "all"), harness.Setting("log_line_prefix", "%n %a|"))
	for _, notify := range []string{"off", "on"} {
		f := polling(t, fixture.On(s), fixture.Notify(), fixture.Set("POLLING_INTERVAL", "700ms"), fixture.Set("POLLING_NOTIFY", notify))
		r := f.Relay(t).Ready(t)
		f.DB.Exec(t, "INSERT INTO outbox (aggregate_type, aggregate_id, event_type) VALUES ('Order', '1', 'created')")
		f.Settled(t)
		busy := len(s.Statements(t, "walrelay"))
		var idle []harness.Statement
		await(t, "six statements were logged", func() bool {
			idle = s.Statements(t, "walrelay")[busy:]
			return len(idle) >= 6
		})
		r.Stop(t)
		for i, s := range idle[1:6] {
			if !strings.Contains(s.Text, "walrelay:poll") {
				t.Errorf("an idle relay asks %q", s.Text)
			}
			if gap := s.At - idle[i].At; gap < 0.69 {
				t.Errorf("notify %s: two questions within %.2f s", notify, gap)
			}
		}
	}
}
