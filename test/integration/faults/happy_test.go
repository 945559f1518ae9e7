package faults

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"walrelay/test/harness"
	"walrelay/test/harness/oracle"
	"walrelay/test/integration/fixture"
)

// One row of every kind, on every PostgreSQL.
func TestEveryKindOfRow(t *testing.T) {
	harness.EachVersion(t, func(t *testing.T, s *harness.Server) {
		t.Parallel()
		f := fixture.New(t, fixture.On(s))
		b := f.Binary(t).Ready(t)
		began := time.Now()
		f.DB.Exec(t, `INSERT INTO outbox (event_id, aggregate_type, aggregate_id, event_type, payload, headers, topic, partition_key, created_at) VALUES
			('00000000-0000-4000-8000-000000000001', 'Order', '1', 'OrderCreated', '{"n": 9007199254740993, "price": 1.10, "who": "Zoë"}',
			 '{"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "n": 1.50, "deep": {"a": [true, null]}, "none": null, "quote": "\"é\n"}',
			 NULL, NULL, '2001-02-03 04:05:06.789012+00'),
			('00000000-0000-4000-8000-000000000002', 'Order', '1', 'order.shipped.v2', NULL, NULL, NULL, 'customer-7', DEFAULT),
			('00000000-0000-4000-8000-000000000003', 'Order', '2', 'created', '[]', '{}', '`+f.Service+`.audit', NULL, DEFAULT)`)
		records := f.Events(t, 3)
		f.Settled(t)
		b.Stop(t)
		for _, r := range records {
			id, _ := harness.HeaderOf(r, "event_id")
			switch id[len(id)-1] {
			case '1':
				isRecord(t, r, f.Service+".order.created", "1", `{"n": 9007199254740993, "who": "Zoë", "price": 1.10}`)
				hasHeaders(t, r, map[string]string{
					"event_type": "OrderCreated", "aggregate_type": "Order", "aggregate_id": "1", "created_at": "2001-02-03T04:05:06.789012Z",
					"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "n": "1.50", "deep": `{"a": [true, null]}`, "none": "", "quote": "\"é\n",
				})
				if age := r.Timestamp.Sub(began); age < -time.Minute || age > time.Hour {
					t.Errorf("Kafka's timestamp is %v, and not the time of publishing", r.Timestamp)
				}
			case '2':
				isRecord(t, r, f.Service+".order.shipped", "customer-7", "")
				if r.Value != nil {
					t.Errorf("a NULL payload is %q, and no tombstone", r.Value)
				}
			case '3':
				isRecord(t, r, f.Service+".audit", "2", "[]")
			}
		}
		havePositions(t, records, "00000000", "00000001", "00000002")
	})
}

func isRecord(t *testing.T, r *kgo.Record, topic, key, value string) {
	t.Helper()
	if r.Topic != topic || string(r.Key) != key || string(r.Value) != value {
		t.Errorf("%s %q %s, want %s %q %s", r.Topic, r.Key, r.Value, topic, key, value)
	}
}

func hasHeaders(t *testing.T, r *kgo.Record, want map[string]string) {
	t.Helper()
	for name, value := range want {
		if got, ok := harness.HeaderOf(r, name); !ok || got != value {
			t.Errorf("header %s: %q (%v), want %q", name, got, ok, value)
		}
	}
}

// havePositions checks the position headers of one transaction: timeline/LSN/ordinal, where the last
// part of the record of event n is ordinals[n-1].
func havePositions(t *testing.T, records []*kgo.Record, ordinals ...string) {
	t.Helper()
	seen := map[string]string{}
	commit := ""
	for _, r := range records {
		id, _ := harness.HeaderOf(r, "event_id")
		position, _ := harness.HeaderOf(r, "position")
		cut := strings.LastIndex(position, "/")
		if cut < 0 || !strings.HasPrefix(position, "00000001/") {
			t.Fatalf("position %q", position)
		}
		if commit == "" {
			commit = position[:cut]
		}
		if position[:cut] != commit {
			t.Errorf("positions %s and %s of one transaction", position[:cut], commit)
		}
		seen[id[len(id)-1:]] = position[cut+1:]
	}
	for i, want := range ordinals {
		if got := seen[fmt.Sprint(i+1)]; got != want {
			t.Errorf("event %d has ordinal %q, want %s", i+1, got, want)
		}
	}
}

// Bytes come as they were written, whatever they are; json and text keep white space and the order
// of keys, which jsonb does not.
func TestPayloadsAreBytes(t *testing.T) {
	for _, c := range []struct{ typ, literal, want string }{
		{"bytea", `'\x00ff5c27e2'`, "\x00\xff\\'\xe2"},
		{"json", `'{"b":  1.10, "a":9007199254740993,"b":"ü"}'`, `{"b":  1.10, "a":9007199254740993,"b":"ü"}`},
		{"text", `E' not JSON\t\\x41\n'`, " not JSON\t\\x41\n"},
	} {
		t.Run(c.typ, func(t *testing.T) {
			t.Parallel()
			f := fixture.New(t, fixture.Payload(c.typ))
			r := f.Relay(t).Ready(t)
			f.DB.Exec(t, "INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ('Order', '1', 'created', "+c.literal+")")
			records := f.Events(t, 1)
			f.Settled(t)
			r.Stop(t)
			isRecord(t, records[0], f.Service+".order.created", "1", c.want)
		})
	}
}

// What becomes of a row that Kafka has. With no fault nothing is sent twice.
func TestAfterPublish(t *testing.T) {
	for after, want := range map[string]string{"mark": "1000 0", "delete": "0 0", "keep": "1000 1000"} {
		t.Run(after, func(t *testing.T) {
			t.Parallel()
			f := fixture.New(t, fixture.Set("RELAY_AFTER_PUBLISH", after))
			r := f.Relay(t).Ready(t)
			load := oracle.Load{Rows: 7, Until: 1000}
			committed := load.Run(t.Context(), t, f.DB, f.Table)
			f.Events(t, len(committed))
			r.Stop(t)
			if got := f.DB.Text(t, "SELECT count(*) || ' ' || count(*) FILTER (WHERE published_at IS NULL) FROM outbox"); got != want {
				t.Errorf("rows and unmarked rows: %s, want %s", got, want)
			}
			if v := f.Verify(t, committed); v.Duplicates > 0 {
				t.Errorf("%d events were published twice", v.Duplicates)
			}
			// Nor does the next relay send any of it again.
			r = f.Relay(t).Ready(t)
			committed = append(committed, load.Run(t.Context(), t, f.DB, f.Table)...)
			f.Events(t, len(committed))
			r.Stop(t)
			if v := f.Verify(t, committed); v.Duplicates > 0 {
				t.Errorf("%d events were published twice after a restart", v.Duplicates)
			}
		})
	}
}
