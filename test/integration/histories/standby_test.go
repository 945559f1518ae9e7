package histories

import (
	"errors"
	"testing"

	"walrelay/internal/postgres"
	"walrelay/test/harness"
	"walrelay/test/integration/fixture"
)

// H13: with '*' every walsender is a synchronous standby. Commits would wait for our confirmation,
// and our confirmation for a commit of ours.
func TestH13RefusesToBeTheSynchronousStandby(t *testing.T) {
	t.Parallel()
	server := harness.Fresh(t, harness.NoSync(), harness.Setting("synchronous_commit", "local"))
	f := fixture.New(t, fixture.On(server))
	w := f.Writer(t)
	f.Relay(t).Ready(t).Stop(t)

	f.DB.Exec(t, "ALTER SYSTEM SET synchronous_standby_names = '*'")
	f.DB.Exec(t, "SELECT pg_reload_conf()")
	ctx := fixture.Within(t, fixture.Limit)
	f.DB.Eventually(ctx, t, "*", "SHOW synchronous_standby_names")
	err := f.Relay(t).Wait(t)
	var fatal *postgres.FatalError
	if !errors.As(err, &fatal) || fatal.Remedy == "" {
		t.Fatalf("the relay ended with %v, want a FatalError that says what to do", err)
	}
	contains(t, err.Error(), "synchronous_standby_names", "leaving out walrelay")

	// What the remedy says.
	f.DB.Exec(t, "ALTER SYSTEM SET synchronous_standby_names = 'standby1'")
	f.DB.Exec(t, "SELECT pg_reload_conf()")
	f.DB.Eventually(ctx, t, "standby1", "SHOW synchronous_standby_names")
	f.Relay(t).Ready(t)
	commit(t, w, order("a"))
	f.Settled(t)
	f.Verify(t, w.Committed())
}
