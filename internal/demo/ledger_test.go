package demo

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"walrelay/outbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestLedgerFindsWhatIsLostRepeatedOrNeverWas(t *testing.T) {
	var shown []time.Duration
	l := newLedger(func(_ arrival, latency time.Duration, _ bool) { shown = append(shown, latency) })
	now := time.Now()
	id := func(n byte) outbox.EventID { return outbox.EventID{n} }

	l.committed([]outbox.EventID{id(1)}, now)
	l.saw(arrival{id: id(1), at: now.Add(130 * time.Millisecond)}) // the warm-up is not timed
	l.startTiming()
	l.saw(arrival{id: id(2), at: now}) // before COMMIT returned
	l.committed([]outbox.EventID{id(2), id(3)}, now.Add(time.Millisecond))
	l.saw(arrival{id: id(3), at: now.Add(4 * time.Millisecond)})
	if got := l.totals(); got.lost+got.repeated+got.phantoms != 0 || got.events != 3 || got.timed != 2 || got.p99.Round(time.Millisecond) != 3*time.Millisecond {
		t.Errorf("a clean run: %+v", got)
	}
	if len(shown) != 3 || shown[1] != 0 {
		t.Errorf("shown: %v", shown)
	}

	l.saw(arrival{id: id(3), at: now}) // again
	l.saw(arrival{id: id(4), at: now}) // committed later, and twice
	l.saw(arrival{id: id(4), at: now})
	l.committed([]outbox.EventID{id(4), id(5)}, now) // 5 never comes
	l.rolledBack([]outbox.EventID{id(6), id(7)})
	l.saw(arrival{id: id(6), at: now})
	if got := l.totals(); got.lost != 1 || got.repeated != 2 || got.phantoms != 1 || got.declined != 1 || got.transactions != 3 {
		t.Errorf("got %+v", got)
	}
	l.await(t.Context(), time.Millisecond) // is bounded
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	l.await(ctx, time.Hour) // and ends with its context
}

func TestAwaitWakesUp(t *testing.T) {
	l := newLedger(func(arrival, time.Duration, bool) {})
	l.committed([]outbox.EventID{{1}}, time.Now())
	done := make(chan struct{})
	go func() {
		defer close(done)
		l.await(t.Context(), time.Minute)
	}()
	l.saw(arrival{id: outbox.EventID{1}, at: time.Now()})
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Fatal("the last event did not end the wait")
	}
}

func TestColumnsAreAligned(t *testing.T) {
	for _, colour := range []bool{false, true} {
		var out bytes.Buffer
		v := newView(&out, colour)
		v.event(arrival{topic: "shop.order.created", key: "1001", eventType: "OrderCreated"}, 1234*time.Microsecond, false)
		v.event(arrival{topic: "shop.payment.authorized", key: "1", eventType: "PaymentAuthorized"}, 250*time.Millisecond, false)
		v.event(arrival{topic: "shop.order.created", key: "1", eventType: "OrderCreated"}, 0, false)
		text := out.String()
		if strings.Contains(text, "\x1b") != colour {
			t.Errorf("colour %v: %q", colour, text)
		}
		for _, style := range []string{green, amber, red} {
			text = strings.ReplaceAll(text, "\x1b["+style+"m", "")
		}
		lines := strings.Split(strings.TrimSuffix(strings.ReplaceAll(text, "\x1b[0m", ""), "\n"), "\n")
		for _, line := range lines[1:] {
			if len(line) != len(lines[0]) {
				t.Errorf("not aligned:\n%s", text)
			}
		}
	}
}
