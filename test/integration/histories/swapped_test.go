package histories

import (
	"regexp"
	"testing"

	"walrelay/test/harness/oracle"
	"walrelay/test/integration/fixture"
)

// H21: a table that is no longer in the publication is sent as nothing, and keepalives go on.
func TestH21TableDroppedFromThePublication(t *testing.T) {
	t.Parallel()
	f := fixture.New(t)
	publication := `"` + f.DB.Name + `"`
	swapped(t, f, "ALTER PUBLICATION "+publication+" DROP TABLE outbox", "does not publish table public.outbox",
		`ALTER PUBLICATION "[a-z0-9_]+" ADD TABLE "public"."outbox"`)
}

// H21: a table that is converted by renaming is another table for the publication.
func TestH21TableSwappedByRename(t *testing.T) {
	t.Parallel()
	f := fixture.New(t)
	swapped(t, f, "ALTER TABLE outbox RENAME TO outbox_old; CREATE TABLE outbox (LIKE outbox_old INCLUDING ALL)",
		"was dropped or replaced", `ALTER PUBLICATION "[a-z0-9_]+" SET TABLE "public"."outbox"`)
}

// swapped takes the table out of the stream while the relay runs. The relay must notice and say what
// to type, and typing it must be enough.
func swapped(t *testing.T, f *fixture.Fixture, swap, reason, remedy string) {
	t.Helper()
	w := f.Writer(t)
	r := f.Relay(t).Ready(t)
	commit(t, w, order("a"), order("b"))
	f.Settled(t)

	f.DB.Exec(t, swap)
	mode := refusal(t, r.Wait(t), reason)
	at := confirmed(t, f)
	typed := regexp.MustCompile(remedy).FindString(mode.Remedy)
	if typed == "" {
		t.Fatalf("the remedy %q is not %q", mode.Remedy, remedy)
	}

	// Until it is typed no relay starts, and the position stays.
	missed := f.Writer(t)
	commit(t, missed, order("missed"))
	refusal(t, f.Relay(t).Wait(t), "does not publish table public.outbox")
	if now := confirmed(t, f); now != at {
		t.Errorf("no early ack: the position moved from %s to %s while the stream did not hold every row", at, now)
	}

	f.DB.Exec(t, typed)
	f.Relay(t).Ready(t)
	commit(t, w, order("a"), order("c"))
	f.Events(t, 4)
	// The row that the stream missed is still in the table, unmarked, for whoever publishes it.
	f.DB.Eventually(fixture.Within(t, fixture.Limit), t, "missed", "SELECT string_agg(aggregate_id, ',') FROM outbox WHERE published_at IS NULL")
	oracle.Verify(t, w.Committed(), oracle.FromRecords(f.Consumer(t).Records()))
}
