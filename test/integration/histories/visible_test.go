package histories

import (
	"strings"
	"testing"

	"walrelay/test/harness"
	"walrelay/test/harness/oracle"
	"walrelay/test/integration/fixture"
)

// H1: the walsender sends a commit as soon as it is on disk, also one that waits for a synchronous
// standby and that nobody can see yet. A mark hits nothing then; without an error.
func TestH01PublishedBeforeItIsVisible(t *testing.T) {
	t.Parallel()
	server := harness.Fresh(t, harness.NoSync(),
		harness.Setting("synchronous_commit", "local"), harness.Setting("synchronous_standby_names", "absent"))
	f := fixture.New(t, fixture.On(server))
	r := f.Relay(t).Ready(t)

	ctx := fixture.Within(t, fixture.Limit)
	waiting := f.DB.Connect(t)
	if _, err := waiting.Exec(ctx, "SET synchronous_commit = on"); err != nil {
		t.Fatal(err)
	}
	id := newEventID()
	done := make(chan error, 1)
	go func() {
		_, err := waiting.Exec(ctx, insertRow, id, "waits")
		done <- err
	}()
	records := f.Events(t, 1)
	at, _ := harness.HeaderOf(records[0], "position")
	hex := strings.Split(at, "/")
	if len(hex) != 3 {
		t.Fatalf("position %q", at)
	}
	start := position(t, hex[1][:8]+"/"+hex[1][8:]) // of the commit record

	// Another transaction is published, marked and could be confirmed.
	w := f.Writer(t)
	commit(t, w, order("later"))
	f.Events(t, 2)
	f.DB.Eventually(ctx, t, "1", "SELECT count(*) FROM outbox WHERE published_at IS NOT NULL")
	statuses(t, f)
	if n := f.DB.Text(t, "SELECT count(*) FROM outbox"); n != "1" {
		t.Fatalf("the server shows %s rows: it has not held the commit back", n)
	}
	if got := confirmed(t, f); got > start {
		t.Errorf("no early ack: %s is confirmed, and the row that commits at %s cannot be settled yet", got, start)
	}

	f.DB.Exec(t, "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'")
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	f.Settled(t)
	r.Stop(t)

	// A mark that was missed would be published again by the next relay.
	f.Relay(t).Ready(t).Stop(t)
	row := oracle.Committed{EventID: id, Key: "waits"}
	if v := f.Verify(t, append(w.Committed(), row)); v.Duplicates > 0 {
		t.Errorf("bounded duplicates: %d without a crash", v.Duplicates)
	}
}
