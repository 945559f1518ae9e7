package outbox

import (
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestInsert(t *testing.T) {
	id := EventID{0x01, 0x93, 15: 0x2a}
	draft := Draft{ID: id, AggregateType: "Order", AggregateID: "42", EventType: "OrderCreated", Payload: map[string]int{"n": 1}}
	full := draft
	full.Headers = map[string]string{"tenant": "7", "quote": `"`}
	full.PartitionKey, full.Topic = "p", "orders"
	topic := draft
	topic.Topic = "orders"

	const plain = `INSERT INTO "public"."outbox" ("event_id", "aggregate_type", "aggregate_id", "event_type", "payload") VALUES ($1, $2, $3, $4, $5)`
	values := []any{"01930000-0000-0000-0000-00000000002a", "Order", "42", "OrderCreated", `{"n":1}`}
	for _, c := range []struct {
		name  string
		cfg   Config
		draft Draft
		query string
		args  []any
	}{
		{"plain", Config{}, draft, plain, values},
		{
			"full", Config{}, full,
			`INSERT INTO "public"."outbox" ("event_id", "aggregate_type", "aggregate_id", "event_type", "payload", "headers", "partition_key", "topic") VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`,
			append(values[:5:5], `{"quote":"\"","tenant":"7"}`, "p", "orders"),
		},
		{
			"topic alone", Config{}, topic,
			`INSERT INTO "public"."outbox" ("event_id", "aggregate_type", "aggregate_id", "event_type", "payload", "topic") VALUES ($1, $2, $3, $4, $5, $6)`,
			append(values[:5:5], "orders"),
		},
		{
			"other names", Config{Table: "Shop.events", Columns: Columns{EventID: "id", Payload: `da"ta`}}, draft,
			`INSERT INTO "Shop"."events" ("id", "aggregate_type", "aggregate_id", "event_type", "da""ta") VALUES ($1, $2, $3, $4, $5)`,
			values,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, err := NewAppender(c.cfg)
			if err != nil {
				t.Fatal(err)
			}
			query, args, err := a.insert(c.draft)
			if err != nil || query != c.query || !reflect.DeepEqual(args, c.args) {
				t.Errorf("%s %q, error %v; want\n%s %q", query, args, err, c.query, c.args)
			}
		})
	}
}

func TestInsertPayload(t *testing.T) {
	a, err := NewAppender(Config{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ payload, want any }{
		{nil, nil},
		{json.RawMessage(nil), nil},
		{json.RawMessage(`{"price": 1.10}`), `{"price": 1.10}`},
		{`{"price": 1.10}`, `{"price": 1.10}`},
		{[]byte{0, 0xff}, []byte{0, 0xff}},
		{[]int{1, 2}, `[1,2]`},
		{struct {
			Price float64 `json:"price"`
		}{1.5}, `{"price":1.5}`},
	} {
		_, args, err := a.insert(Draft{AggregateType: "a", AggregateID: "1", EventType: "e", Payload: c.payload})
		if err != nil || !reflect.DeepEqual(args[4], c.want) {
			t.Errorf("payload %#v is written as %#v, error %v; want %#v", c.payload, args[4], err, c.want)
		}
	}
}

// What cannot be written is refused before the database is asked, so the caller's transaction goes on.
func TestAppendRefuses(t *testing.T) {
	a, err := NewAppender(Config{})
	if err != nil {
		t.Fatal(err)
	}
	good := Draft{AggregateType: "a", AggregateID: "1", EventType: "e"}
	noType, noID, noEvent, noJSON := good, good, good, good
	noType.AggregateType, noID.AggregateID, noEvent.EventType, noJSON.Payload = "", "", "", math.Inf(1)
	for _, d := range []Draft{noType, noID, noEvent, noJSON} {
		// Without a transaction the call would panic if it came that far.
		if id, err := a.Append(t.Context(), nil, d); err == nil || id != (EventID{}) {
			t.Errorf("%+v: id %s, error %v", d, id, err)
		}
		if _, err := a.AppendSQL(t.Context(), nil, d); err == nil {
			t.Errorf("%+v: no error", d)
		}
	}
	var unsupported *json.UnsupportedValueError
	if _, err := a.Append(t.Context(), nil, noJSON); !errors.As(err, &unsupported) {
		t.Errorf("error %v does not wrap its cause", err)
	}
}

func TestNewAppenderRefusesTable(t *testing.T) {
	if a, err := NewAppender(Config{Table: `a"b`}); err == nil || a != nil {
		t.Errorf("appender %v, error %v", a, err)
	}
}

func TestNewEventID(t *testing.T) {
	at := time.UnixMilli(0x0193_7abc_def0)
	id, other := newEventID(at), newEventID(at)
	s := id.String()
	if !strings.HasPrefix(s, "01937abc-def0-7") || !strings.Contains("89ab", s[19:20]) {
		t.Errorf("%s is not a version 7 UUID of %s", s, at)
	}
	if id == other {
		t.Errorf("%s came twice", s)
	}
	if later := newEventID(at.Add(time.Millisecond)).String(); later <= s {
		t.Errorf("%s is not after %s", later, s)
	}
}
