package histories

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"walrelay/internal/localdev"
	"walrelay/test/harness"
	"walrelay/test/harness/oracle"
	"walrelay/test/integration/fixture"
)

// H4: the server is restored from an image while a relay lives: same system id, same timeline, other
// transactions at the positions that the relay has seen. The relay comes back after their positions
// have passed its own.
func TestH04RestoredBehindTheRelay(t *testing.T) {
	t.Parallel()
	server := harness.Fresh(t, harness.NoSync())
	f := fixture.New(t, fixture.On(server))
	proxy := harness.NewProxy(t)
	r := f.Relay(t, through(proxy, f)).Ready(t)
	ctx := fixture.Within(t, 2*fixture.Limit)
	all := oracle.Load{Until: 100}.Run(ctx, t, f.DB, f.Table)
	confirmedAll(t, f)
	restore := image(t, f)
	all = append(all, oracle.Load{Until: 300}.Run(ctx, t, f.DB, f.Table)...)
	confirmedAll(t, f)
	ahead := confirmed(t, f)

	proxy.Refuse()
	proxy.Cut()
	restore()
	if got := confirmed(t, f); got >= ahead {
		t.Fatalf("the restored slot is at %s, not before %s", got, ahead)
	}
	all = append(all, oracle.Load{Until: 600}.Run(ctx, t, f.DB, f.Table)...)
	if now := position(t, f.DB.Text(t, "SELECT pg_current_wal_lsn()")); now <= ahead {
		t.Fatalf("the new history ends at %s, not beyond %s", now, ahead)
	}
	proxy.Resume()
	confirmedAll(t, f)
	f.Verify(t, all)
	r.Stop(t)
}

// H4 on a quiet server: the new history is far from the old position when the relay comes back. Its
// events must not wait until it gets there.
func TestH04RestoredAndQuiet(t *testing.T) {
	t.Parallel()
	server := harness.Fresh(t, harness.NoSync())
	f := fixture.New(t, fixture.On(server))
	r := f.Relay(t).Ready(t)
	ctx := fixture.Within(t, 2*fixture.Limit)
	w := f.Writer(t)
	commit(t, w, order("a"))
	confirmedAll(t, f)
	restore := image(t, f)
	all := append(w.Committed(), oracle.Load{Until: 1000}.Run(ctx, t, f.DB, f.Table)...)
	confirmedAll(t, f)
	ahead := confirmed(t, f)
	restore()
	after := f.Writer(t)
	commit(t, after, order("b"))
	confirmedAll(t, f)
	if now := position(t, f.DB.Text(t, "SELECT pg_current_wal_lsn()")); now >= ahead {
		t.Fatalf("the new history ends at %s, not before %s: nothing was shown", now, ahead)
	}
	f.Verify(t, append(all, after.Committed()...))
	r.Stop(t)
}

// H11: a row that was published is lost with its server's history before it could be marked, and the
// next history gives its id to another event. The mark that is still owed must not hit that one.
func TestH11RowIdComesBack(t *testing.T) {
	t.Parallel()
	server := harness.Fresh(t, harness.NoSync())
	f := fixture.New(t, fixture.On(server))
	kafka := harness.NewProxy(t)
	r := f.Relay(t, f.KafkaThrough(kafka)).Ready(t)
	w := f.Writer(t)
	commit(t, w, order("a"))
	confirmedAll(t, f)
	restore := image(t, f)

	unmarkable(t, f)
	lost := f.Writer(t)
	commit(t, lost, order("lost"))
	f.Events(t, 2)
	eventually(t, "a mark is owed", func() bool { return r.Status().Unsettled == 1 })

	kafka.Pause()
	restore() // the row is gone
	reborn := f.Writer(t)
	commit(t, reborn, order("reborn"))
	was, is := lost.Committed()[0], reborn.Committed()[0]
	if was.RowID != is.RowID || was.EventID == is.EventID {
		t.Fatalf("row %d became row %d: nothing was shown", was.RowID, is.RowID)
	}
	written := f.DB.Text(t, "SELECT pg_current_wal_lsn()")
	f.DB.Eventually(fixture.Within(t, fixture.Limit), t, "t", "SELECT bool_or(sent_lsn >= '"+written+"') FROM pg_stat_replication")
	statuses(t, f)
	if r.Status().InFlight == 0 {
		t.Error("the new row is not in flight")
	}
	if marked := f.DB.Text(t, "SELECT published_at IS NOT NULL FROM outbox WHERE aggregate_id = 'reborn'"); marked == "t" {
		t.Error("delivered: the row is marked by the mark of another event, and is not on Kafka")
	}
	kafka.Resume()
	confirmedAll(t, f)
	f.Verify(t, append(append(w.Committed(), was), is))
	r.Stop(t)
}

// image stops the server in order, copies its data and starts it again. The returned function puts the
// copy in the place of the data.
func image(t *testing.T, f *fixture.Fixture) (restore func()) {
	t.Helper()
	ctx := fixture.Within(t, 3*fixture.Limit)
	data := f.DB.Text(t, "SHOW data_directory")
	saved := filepath.Join(filepath.Dir(data), "image")
	server := f.DB.Server.Control()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	cp := func(from, to string) error { return exec.Command("cp", "-a", from, to).Run() }
	must(server.Stop(ctx, localdev.Fast))
	must(cp(data, saved))
	must(server.Start(ctx))
	return func() {
		t.Helper()
		must(server.Stop(ctx, localdev.Immediate))
		must(os.RemoveAll(data))
		must(cp(saved, data))
		must(server.Start(ctx))
	}
}
