package histories

import (
	"strings"
	"testing"
	"time"

	"walrelay/test/harness/oracle"
	"walrelay/test/integration/fixture"
)

// H15: a relay is stopped for longer than wal_sender_timeout, with megabytes in the buffers of its
// dead connection, and another takes over. When it wakes it must not hand over what it had read.
func TestH15WokenRelayHandsOverNothing(t *testing.T) {
	t.Parallel()
	f := fixture.New(t)
	first := f.Binary(t).Ready(t)
	second := f.Relay(t).Ready(t)
	second.Await(t, "standby: another relay holds the lock")
	load := f.StartLoad(t, oracle.Load{Rows: 20, Pause: 10 * time.Millisecond})
	f.Events(t, 200)

	first.Pause(t)
	eventually(t, "the second relay streams", func() bool { return second.Status().Phase == "streaming" })
	stopped := f.DB.Text(t, "SELECT max(id) FROM outbox")
	f.DB.Eventually(fixture.Within(t, fixture.Limit), t, "0", "SELECT count(*) FROM outbox WHERE published_at IS NULL AND id <= "+stopped)
	first.Continue(t)
	eventually(t, "the first relay stands by", func() bool {
		return strings.Contains(first.Log(), "standby: another relay holds the lock") || !first.Running()
	})
	contains(t, first.Log(), `"reason":"lease"`)
	all := load.Stop()
	f.Settled(t)
	second.Stop(t)
	first.Ready(t).Stop(t)
	v := f.Verify(t, all)
	t.Logf("%d events, %d duplicates", len(all), v.Duplicates)
}
