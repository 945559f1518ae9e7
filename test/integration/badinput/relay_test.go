// Package badinput holds tests that give the built binary what it cannot work with, on real servers:
// it must say so in one line that names the thing and what to type, exit as its help promises, and
// leave the table and the slot as they were.
package badinput

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"walrelay/test/harness"
	"walrelay/test/integration/fixture"
)

func TestMain(m *testing.M) { os.Exit(fixture.Run(m)) }

// secret is the password of every URL that has one. No output may hold it, however it is written.
const secret = "s3cr3t"

// insertRow writes one row that a relay would publish.
const insertRow = `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ('Order', '42', 'OrderCreated', '{}')`

func newFixture(t *testing.T, server *harness.Server, kafka *harness.Cluster) *fixture.Fixture {
	t.Helper()
	return fixture.New(t, fixture.On(server), fixture.To(kafka),
		fixture.Set("REPLICATION_PUBLICATION", "walrelay"), fixture.Set("LOG_FORMAT", "text"))
}

// relay is one run of the binary. All that it printed is in the test's log.
type relay struct{ *fixture.Binary }

func run(t *testing.T, environ []string, args ...string) relay {
	t.Helper()
	if len(args) == 0 {
		args = []string{"run"}
	}
	r := relay{fixture.Command(t, environ, args...)}
	t.Cleanup(func() {
		t.Logf("printed:\n%s", r.Log())
		if strings.Contains(r.Log(), secret) {
			t.Error("the password was printed")
		}
	})
	return r
}

// await waits until the output holds text n times.
func (r relay) await(t *testing.T, text string, n int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d × %q in the output", n, text), func() bool { return strings.Count(r.Log(), text) >= n })
}

// eventually asks every 20 ms.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), fixture.Limit)
	defer cancel()
	for !is() {
		select {
		case <-ctx.Done():
			t.Fatalf("waited for %s: %v", what, ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// message waits for the end with that exit code, and returns what an operator reads last: everything
// that is not a log line, which must be one line.
func (r relay) message(t *testing.T, code int) string {
	t.Helper()
	if got := r.Code(t); got != code {
		t.Errorf("exit code %d, want %d", got, code)
	}
	var found []string
	for line := range strings.Lines(r.Log()) {
		if !strings.HasPrefix(line, "time=") {
			found = append(found, strings.TrimSuffix(line, "\n"))
		}
	}
	if len(found) != 1 || !strings.HasPrefix(found[0], "walrelay: ") {
		t.Errorf("the message is not one line after \"walrelay: \": %q", found)
	}
	return strings.Join(found, "\n")
}

// expect checks that text holds every piece.
func expect(t *testing.T, text string, pieces ...string) {
	t.Helper()
	for _, piece := range pieces {
		if !strings.Contains(text, piece) {
			t.Errorf("no %q in: %s", piece, text)
		}
	}
}

// remains checks that the query still counts as many rows, and that the slot is as it was: its plugin,
// "physical", or "none".
func remains(t *testing.T, f *fixture.Fixture, rows string, n int, slot string) {
	t.Helper()
	if got := f.DB.Text(t, rows); got != fmt.Sprint(n) {
		t.Errorf("%s: %s, want %d", rows, got, n)
	}
	plugin := "SELECT coalesce(max(coalesce(plugin, 'physical')), 'none') FROM pg_replication_slots WHERE slot_name = '" + f.Slot + "'"
	if got := f.DB.Text(t, plugin); got != slot {
		t.Errorf("slot afterwards: %s, want %s", got, slot)
	}
}
