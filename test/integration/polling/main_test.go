// Package polling shows the promises for RELAY_MODE=polling, with real servers.
package polling

import (
	"errors"
	"os"
	"testing"
	"time"

	"walrelay/internal/source"
	"walrelay/test/harness/oracle"
	"walrelay/test/integration/fixture"
)

func TestMain(m *testing.M) { os.Exit(fixture.Run(m)) }

func polling(t *testing.T, opts ...fixture.Option) *fixture.Fixture {
	t.Helper()
	return fixture.New(t, append([]fixture.Option{fixture.Set("RELAY_MODE", "polling"), fixture.Set("POLLING_INTERVAL", "50ms")}, opts...)...)
}

func order(id string) oracle.Event {
	return oracle.Event{AggregateType: "Order", AggregateID: id, EventType: "created", Payload: "{}"}
}

func commit(t *testing.T, w *oracle.Writer, events ...oracle.Event) {
	t.Helper()
	if err := w.Commit(t.Context(), events...); err != nil {
		t.Fatal(err)
	}
}

// await waits until it is so.
func await(t *testing.T, what string, so func() bool) {
	t.Helper()
	limit := time.After(fixture.Limit)
	for !so() {
		select {
		case <-limit:
			t.Fatalf("waited in vain until %s", what)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// halts fails unless the relay ended at that row.
func halts(t *testing.T, err error, row oracle.Committed) {
	t.Helper()
	var poison *source.PoisonError
	if !errors.As(err, &poison) || poison.EventID != row.EventID || poison.RowID != row.RowID {
		t.Fatalf("the relay ended with %v, want it to halt at row %d", err, row.RowID)
	}
}
