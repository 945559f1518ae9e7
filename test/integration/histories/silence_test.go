package histories

import (
	"testing"

	"walrelay/test/harness"
	"walrelay/test/integration/fixture"
)

// H23: a server that decodes something huge in silence ends every session at the same place, without a
// word. After two such ends the next session gives it twice the time.
func TestH23SilentEndsGetTheServerMoreTime(t *testing.T) {
	t.Parallel()
	f := fixture.New(t)
	proxy := harness.NewProxy(t)
	r := f.Relay(t, through(proxy, f)).Ready(t)
	markable := unmarkable(t, f) // the position cannot move: no session makes progress
	w := f.Writer(t)
	commit(t, w, order("a"))
	f.Events(t, 1)
	streaming := func() bool { return r.Status().Phase == "streaming" }
	for range 3 { // the first one ends a session that had made some
		eventually(t, "the relay streams", streaming)
		since := r.Status().Since
		proxy.Cut()
		eventually(t, "another session streams", func() bool { return streaming() && r.Status().Since.After(since) })
	}
	contains(t, r.Log(), "giving the server more time", "wal_sender_timeout=30s")
	markable()
	f.Settled(t)
	r.Stop(t)
	f.Verify(t, w.Committed())
}
