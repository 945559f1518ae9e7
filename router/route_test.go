package router

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"walrelay/outbox"
)

func TestTopic(t *testing.T) {
	const topicMap = "order=orders.events,order.cancelled=orders.cancelled,OrderLine.OrderLineAdded.v1=lines,größe=sizes"
	x := strings.Repeat("x", 249)
	for _, c := range []struct {
		name                  string
		template, topicMap    string // default template where empty
		aggregate, event, own any    // nil is NULL
		want                  string
		reason                string // part of it; the event is unroutable then
	}{
		{name: "default", aggregate: "Order", event: "OrderCreated", want: "shop.order.created"},
		{name: "dotted", aggregate: "Order", event: "order.created.v1", want: "shop.order.created"},
		{name: "plain", aggregate: "Order", event: "created", want: "shop.order.created"},
		{name: "dots inside", aggregate: "Order", event: "order.line.added", want: "shop.order.line-added"},
		{name: "verbatim", template: "{aggregate_type}.{event_type}", aggregate: "Order", event: "order.Created.v1", want: "Order.order.Created.v1"},
		{name: "fixed", template: "events", want: "events"},
		{name: "aggregate only", template: "{service}.{aggregate}", aggregate: "Order", want: "shop.order"},
		{name: "adjacent", template: "{service}{service}-{event}_", event: "a", want: "shopshop-a_"},

		{name: "own topic", topicMap: topicMap, aggregate: "Order", event: "created", own: "My.Topic_1", want: "My.Topic_1"},
		{name: "own topic needs no types", own: "t", want: "t"},
		{name: "own topic of full length", own: x, want: x},
		{name: "map aggregate", topicMap: topicMap, aggregate: "ORDER", event: "OrderCreated", want: "orders.events"},
		{name: "map aggregate, event NULL", topicMap: topicMap, aggregate: "order", want: "orders.events"},
		{name: "map event first", topicMap: topicMap, aggregate: "Order", event: "OrderCancelled", want: "orders.cancelled"},
		{name: "map event normalised", topicMap: topicMap, aggregate: "order_line", event: "added.v7", want: "lines"},
		{name: "map other event", topicMap: topicMap, aggregate: "order_line", event: "removed", want: "shop.order-line.removed"},
		{name: "map a type that no topic could hold", topicMap: topicMap, aggregate: "Größe", event: "x", want: "sizes"},

		{name: "own topic empty", own: "", reason: `topic "" of the row is empty: write a legal topic name, or NULL`},
		{name: "own topic illegal", own: "a b", reason: `topic "a b" of the row holds ' '`},
		{name: "own topic dots", own: "..", reason: `topic ".."`},
		{name: "own topic too long", own: x + "x", reason: "is 250 bytes long, 249 at most"},
		{name: "own topic not UTF-8", own: "a\xff", reason: "of the row holds"},
		{name: "aggregate NULL", event: "created", reason: "aggregate type is NULL, and ROUTER_TOPIC needs it for {aggregate}"},
		{name: "event NULL", aggregate: "Order", reason: "event type is NULL"},
		{name: "aggregate empty", aggregate: "", event: "created", reason: `aggregate type "" leaves nothing for {aggregate}`},
		{name: "event of separators", aggregate: "Order", event: "._", reason: `event type "._" leaves nothing for {event}`},
		{name: "non-ASCII aggregate", aggregate: "Größe", event: "x", reason: `aggregate type "Größe" holds 'ö'`},
		{name: "non-ASCII event", aggregate: "Order", event: "bezahlt€", reason: `event type "bezahlt€" holds '€'`},
		{name: "Kelvin sign", aggregate: "\u212A", event: "x", reason: "aggregate type"},
		{name: "verbatim illegal", template: "{event_type}", event: "a b", reason: `event type "a b" holds ' '`},
		{name: "verbatim dots", template: "{aggregate_type}", aggregate: "..", reason: `is a name that Kafka refuses: {aggregate_type} is ".."`},
		{name: "verbatim empty", template: "a{aggregate_type}", aggregate: "", reason: "leaves nothing for {aggregate_type}"},
		{name: "too long", aggregate: "Order", event: x, reason: "topic name from ROUTER_TOPIC is 260 bytes long, 249 at most: {event} is \"xxx"},
		{name: "NUL", aggregate: "a\x00b", event: "x", reason: `holds '\x00'`},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := Config{Service: "shop", Topic: c.template, TopicMap: c.topicMap, Format: "native"}
			if cfg.Topic == "" {
				cfg.Topic = "{service}.{aggregate}.{event}"
			}
			r := newRouter(t, cfg)
			ev := outbox.Event{AggregateType: column(c.aggregate), EventType: column(c.event), Topic: column(c.own)}
			for range 2 { // the second time from memory
				rec := Record{Topic: "old"}
				err := r.Route(&ev, &rec)
				var u *Unroutable
				switch {
				case c.reason == "" && (err != nil || rec.Topic != c.want):
					t.Fatalf("topic %q, error %v; want %q", rec.Topic, err, c.want)
				case c.reason != "" && !errors.As(err, &u):
					t.Fatalf("topic %q, error %v; want unroutable", rec.Topic, err)
				case c.reason != "" && !strings.Contains(u.Reason, c.reason):
					t.Fatalf("reason %q does not say %q", u.Reason, c.reason)
				case c.reason != "" && rec.Topic != "":
					t.Fatalf("an unroutable event left the topic %q behind", rec.Topic)
				}
			}
		})
	}
}

func TestDefaultServiceIsTheDatabase(t *testing.T) {
	r, err := New(fromEnv(t, nil), "Order_Service")
	if err != nil {
		t.Fatal(err)
	}
	var rec Record
	if err := r.Route(&outbox.Event{AggregateType: []byte("Order"), EventType: []byte("created")}, &rec); err != nil {
		t.Fatal(err)
	}
	if want := "order-service.order.created"; rec.Topic != want {
		t.Fatalf("topic %q, want %q", rec.Topic, want)
	}
}

// A reason goes into logs and a table, so it holds a bounded piece of what the writer wrote.
func TestReasonIsBounded(t *testing.T) {
	r := newRouter(t, defaults())
	for _, ev := range []outbox.Event{
		{Topic: bytes.Repeat([]byte("€"), 1<<16)},
		{AggregateType: bytes.Repeat([]byte("\xff"), 1<<16), EventType: []byte("x")},
		{AggregateType: []byte("x"), EventType: bytes.Repeat([]byte("€"), 1<<16)},
	} {
		err := r.Route(&ev, &Record{})
		if err == nil || len(err.Error()) > 600 {
			t.Errorf("reason of %d bytes, want at most 600", len(fmt.Sprint(err)))
		}
	}
}

func TestKey(t *testing.T) {
	for _, c := range []struct {
		name               string
		partition, id, key any
	}{
		{"aggregate id", nil, "42", "42"},
		{"partition key first", "p", "42", "p"},
		{"partition key empty", "", "42", ""},
		{"aggregate id empty", nil, "", ""},
		{"no aggregate id", "p", nil, "p"},
		{"neither", nil, nil, nil},
	} {
		ev := event()
		ev.PartitionKey, ev.AggregateID = column(c.partition), column(c.id)
		var rec Record
		if err := newRouter(t, defaults()).Route(&ev, &rec); err != nil {
			t.Fatal(err)
		}
		if want := column(c.key); !bytes.Equal(rec.Key, want) || (rec.Key == nil) != (want == nil) {
			t.Errorf("%s: key %q (nil: %v), want %q", c.name, rec.Key, rec.Key == nil, want)
		}
	}
}

func TestValue(t *testing.T) {
	for _, payload := range []any{nil, "", "null", `{"price": 1.10, "n": 9007199254740993}`, "\x00\xff"} {
		ev := event()
		ev.Payload = column(payload)
		var rec Record
		if err := newRouter(t, defaults()).Route(&ev, &rec); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(rec.Value, ev.Payload) || (rec.Value == nil) != (payload == nil) {
			t.Errorf("value %q (nil: %v), want %q", rec.Value, rec.Value == nil, payload)
		}
	}
}

func TestCreatedAt(t *testing.T) {
	east := time.FixedZone("", 5*3600+1800)
	for _, c := range []struct {
		at   time.Time
		want string
	}{
		{time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC), "2026-11-30T10:00:00Z"},
		{time.Date(2026, 11, 30, 10, 0, 0, 120_000_000, time.UTC), "2026-11-30T10:00:00.12Z"},
		{time.Date(2026, 11, 30, 10, 0, 0, 123_456_000, time.UTC), "2026-11-30T10:00:00.123456Z"},
		{time.Date(2026, 11, 30, 10, 0, 0, 1_000, time.UTC), "2026-11-30T10:00:00.000001Z"},
		{time.Date(2026, 11, 30, 1, 0, 0, 0, east), "2026-11-29T19:30:00Z"},
		{time.Time{}, ""},
	} {
		ev := event()
		ev.CreatedAt = c.at
		var rec Record
		if err := newRouter(t, defaults()).Route(&ev, &rec); err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, h := range rec.Headers {
			if h.Key == "created_at" {
				got = string(h.Value)
			}
		}
		if got != c.want {
			t.Errorf("created_at of %v is %q, want %q", c.at, got, c.want)
		}
	}
}

// The golden file shows whole records. UPDATE_GOLDEN=1 writes it anew.
func TestGolden(t *testing.T) {
	full := event()
	full.Headers = []byte(`{"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "attempt": 1.10, "nothing": null, "tags": ["a", {"b": 2}]}`)
	polled := full
	polled.Position = outbox.Position{}
	tombstone := event()
	tombstone.Payload, tombstone.PartitionKey = nil, []byte("tenant-7")
	sparse := outbox.Event{ID: full.ID, Topic: []byte("audit"), Payload: []byte{}}
	ours := event()
	ours.Headers = []byte(`{"event_id": "theirs", "Event_ID": "theirs too"}`)

	r := newRouter(t, defaults())
	var rec Record
	var got bytes.Buffer
	for _, c := range []struct {
		name string
		ev   outbox.Event
	}{
		{"from the stream", full},
		{"from a poll", polled},
		{"tombstone with a partition key", tombstone},
		{"nothing but a topic and an empty payload", sparse},
		{"a header that carries one of our names", ours},
	} {
		if err := r.Route(&c.ev, &rec); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		fmt.Fprintf(&got, "# %s\n%s\n", c.name, printed(&rec))
	}
	const file = "testdata/records.golden"
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(file, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes(), want) {
		t.Errorf("records differ from %s:\n%s", file, got.String())
	}
}

func printed(rec *Record) string {
	var b strings.Builder
	fmt.Fprintf(&b, "topic %s\nkey   %s\nvalue %s\n", rec.Topic, quoted(rec.Key), quoted(rec.Value))
	for _, h := range rec.Headers {
		fmt.Fprintf(&b, "      %s: %s\n", h.Key, quoted(h.Value))
	}
	return b.String()
}

func quoted(b []byte) string {
	if b == nil {
		return "null"
	}
	return fmt.Sprintf("%q", b)
}

func defaults() Config {
	return Config{Service: "shop", Topic: "{service}.{aggregate}.{event}", Format: "native"}
}

func newRouter(t testing.TB, cfg Config) *Router {
	t.Helper()
	r, err := New(cfg, "db")
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// event is an ordinary one.
func event() outbox.Event {
	return outbox.Event{
		RowID:         7,
		ID:            outbox.EventID{0x01, 0x93, 0x7a, 0xbc, 0, 0, 0x70, 0, 0x80, 0, 0, 0, 0, 0, 0, 0x2a},
		AggregateType: []byte("Order"),
		AggregateID:   []byte("4711"),
		EventType:     []byte("OrderCreated"),
		Payload:       []byte(`{"total": 1.10}`),
		CreatedAt:     time.Date(2026, 11, 30, 10, 0, 0, 123_456_000, time.UTC),
		Position:      outbox.Position{Timeline: 1, LSN: 0x16B374D48, Ordinal: 3},
	}
}

// column is a column's value: nil is NULL.
func column(v any) []byte {
	if v == nil {
		return nil
	}
	return append([]byte{}, v.(string)...)
}
