package histories

import (
	"testing"

	"walrelay/internal/localdev"
	"walrelay/test/harness"
	"walrelay/test/harness/oracle"
	"walrelay/test/integration/fixture"
)

// H14: marks that are not on disk when their position is confirmed are gone after a crash, and the
// slot is ahead of them. The role's own asynchronous commits must not reach the relay's.
func TestH14MarksSurviveACrash(t *testing.T) {
	t.Parallel()
	server := harness.Fresh(t, harness.Setting("wal_writer_delay", "10s"))
	f := fixture.New(t, fixture.On(server))
	f.DB.Exec(t, "CREATE ROLE hasty SUPERUSER LOGIN; ALTER ROLE hasty SET synchronous_commit = off")
	r := f.Relay(t, as("hasty")).Ready(t)
	var all []oracle.Committed
	ctx := fixture.Within(t, 3*fixture.Limit)
	for range 3 {
		w := f.Writer(t)
		commit(t, w, order("a"), order("b"))
		all = append(all, w.Committed()...)
		confirmedAll(t, f)
		if err := server.Control().Restart(ctx, localdev.Immediate); err != nil {
			t.Fatal(err)
		}
		if n := f.DB.Text(t, "SELECT count(*) FROM outbox WHERE published_at IS NULL"); n != "0" {
			t.Errorf("%s rows have lost their mark in the crash, behind a position that was confirmed", n)
		}
	}
	r.Ready(t).Stop(t)
	f.Verify(t, all)
}
