package router

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"walrelay/outbox"
)

func withHeaders() outbox.Event {
	ev := event()
	ev.PartitionKey = []byte("tenant-7")
	ev.Headers = []byte(`{"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "path": "a\/b", "attempt": 2, "tags": ["a", {"b": null}]}`)
	return ev
}

func withOwnTopic() outbox.Event {
	ev := event()
	ev.Topic = []byte("orders")
	return ev
}

func TestRouteAllocatesNothing(t *testing.T) {
	for name, ev := range map[string]outbox.Event{"plain": event(), "headers": withHeaders(), "own topic": withOwnTopic()} {
		r := newRouter(t, defaults())
		var rec Record
		if n := testing.AllocsPerRun(1000, func() {
			if err := r.Route(&ev, &rec); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations per event, want 0", name, n)
		}
	}
}

func BenchmarkRoute(b *testing.B) {
	payload := bytes.Repeat([]byte("x"), 300)
	for name, ev := range map[string]outbox.Event{"plain": event(), "headers": withHeaders(), "topic": withOwnTopic()} {
		ev.Payload = payload
		b.Run(name, func(b *testing.B) {
			r := newRouter(b, defaults())
			var rec Record
			b.ReportAllocs()
			for b.Loop() {
				if err := r.Route(&ev, &rec); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// The event's bytes lie in a buffer that the next read overwrites, while the record waits for Kafka.
func TestRecordOwnsItsBytes(t *testing.T) {
	for name, ev := range map[string]outbox.Event{"plain": event(), "headers": withHeaders(), "own topic": withOwnTopic()} {
		var rec Record
		if err := newRouter(t, defaults()).Route(&ev, &rec); err != nil {
			t.Fatal(err)
		}
		before := fmt.Sprintf("%q %q %q %q", rec.Topic, rec.Key, rec.Value, rec.Headers)
		for _, b := range [][]byte{ev.AggregateType, ev.AggregateID, ev.EventType, ev.PartitionKey, ev.Topic, ev.Payload, ev.Headers} {
			for i := range b {
				b[i] = '#'
			}
		}
		if after := fmt.Sprintf("%q %q %q %q", rec.Topic, rec.Key, rec.Value, rec.Headers); after != before {
			t.Errorf("%s: the record has changed with the event:\n%s\n%s", name, before, after)
		}
	}
}

func TestLargeBuffersAreGivenUp(t *testing.T) {
	r := newRouter(t, defaults())
	var rec Record
	for _, c := range []struct {
		payload int
		kept    bool
	}{{1 << 20, false}, {60 << 10, true}, {70 << 10, false}, {10, true}} {
		ev := event()
		ev.Payload = make([]byte, c.payload)
		if err := r.Route(&ev, &rec); err != nil {
			t.Fatal(err)
		}
		rec.Reset()
		if kept := cap(rec.buf) > 0; kept != c.kept || cap(rec.buf) > largestKeptBuffer {
			t.Errorf("after a payload of %d bytes the record keeps %d", c.payload, cap(rec.buf))
		}
		if rec.Topic != "" || rec.Key != nil || rec.Value != nil || len(rec.Headers) != 0 {
			t.Errorf("Reset left %+v", rec)
		}
		for _, h := range rec.Headers[:cap(rec.Headers)] {
			if h.Key != "" || h.Value != nil {
				t.Fatalf("Reset left the header %+v, which holds the old buffer", h)
			}
		}
	}
}

// Event types that never repeat, and names of any length, do not grow the router.
func TestTopicsAreBounded(t *testing.T) {
	r := newRouter(t, Config{Topic: "events", Format: "native"})
	var rec Record
	for i := range 3 * maxTopics {
		ev := outbox.Event{AggregateType: []byte("Order"), EventType: fmt.Appendf(nil, "created%d", i)}
		if i%2 == 0 {
			ev.Topic = ev.EventType
		}
		if err := r.Route(&ev, &rec); err != nil {
			t.Fatal(err)
		}
		if len(r.topics) > maxTopics {
			t.Fatalf("%d topics are remembered, %d at most", len(r.topics), maxTopics)
		}
	}
	clear(r.topics)
	long := outbox.Event{AggregateType: []byte("Order"), EventType: []byte(strings.Repeat("x", maxTopicName))}
	if err := r.Route(&long, &rec); err != nil || rec.Topic != "events" {
		t.Fatalf("topic %q, error %v", rec.Topic, err)
	}
	if len(r.topics) != 0 {
		t.Error("a topic is remembered under a name of 517 bytes")
	}
}

// Two pairs of types that join to the same text are two keys.
func TestTopicsAreToldApart(t *testing.T) {
	r := newRouter(t, Config{Topic: "{aggregate_type}.{event_type}", Format: "native"})
	var rec Record
	for _, c := range [][3]string{{"a", "bc", "a.bc"}, {"ab", "c", "ab.c"}, {"a", "bc", "a.bc"}} {
		ev := outbox.Event{AggregateType: []byte(c[0]), EventType: []byte(c[1])}
		if err := r.Route(&ev, &rec); err != nil || rec.Topic != c[2] {
			t.Errorf("topic %q, error %v; want %q", rec.Topic, err, c[2])
		}
	}
}
