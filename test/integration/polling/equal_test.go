package polling

import (
	"bytes"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"walrelay/outbox"
	"walrelay/test/harness"
	"walrelay/test/integration/fixture"
)

// What a consumer gets does not depend on the mode: topic, key, value and headers are the same to the
// byte, but for the position, which is a place in the stream.
func TestSameRecordsAsFromTheStream(t *testing.T) {
	t.Parallel()
	for payload, values := range map[string]string{
		"jsonb": `('{"b": 1.10, "a": [12345678901234567890123, 1e400, "\u00e9 \\u0041"]}'::jsonb), (null), ('null'), ('"x"'), (to_jsonb(repeat('long ', 150000)))`,
		"json":  `('{"b":  1.10, "a": 1, "a": 2}'::json), (null), (' 1.10 ')`,
		"text":  `(E'line\nand \\ and "quotes"'), (null), (''), (repeat('ü', 5000))`,
		"bytea": `('\x00ff5c0a'::bytea), (null), (''::bytea), (decode(repeat('00', 100000), 'hex'))`,
	} {
		t.Run(payload, func(t *testing.T) {
			t.Parallel()
			f := fixture.New(t, fixture.Payload(payload))
			// Settings of the database and of the role decide what is printed, unless the relay pins them.
			f.DB.Exec(t, `DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET bytea_output = ''escape''', current_database());
				EXECUTE format('ALTER DATABASE %I SET datestyle = ''German, DMY''', current_database());
				EXECUTE format('ALTER DATABASE %I SET timezone = ''Asia/Kolkata''', current_database()); END $$`)
			streaming := f.Relay(t).Ready(t)
			f.DB.Exec(t, `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, headers, topic, partition_key, created_at, payload)
				SELECT 'Order', 'k' || n, e, h, CASE WHEN n % 3 = 0 THEN '`+f.Service+`.chosen' END, CASE WHEN n % 2 = 0 THEN 'p' || n END,
				       '2026-02-03 04:05:06.789+05:30'::timestamptz - n * interval '1 year', v
				FROM (VALUES `+values+`) v(v), (VALUES ('OrderCreated'), ('order.paid.v2')) e(e),
				     (VALUES (NULL::jsonb), ('{"traceparent": "00-ab", "n": 1.10, "o": {"x": [1]}, "none": null}')) h(h), generate_series(1, 3) n`)
			n := len(f.Rows(t))
			f.Settled(t)
			f.Events(t, n)
			streaming.Stop(t)

			f.DB.Exec(t, "UPDATE outbox SET published_at = NULL")
			f.Setenv("RELAY_MODE", "polling")
			polls := f.Relay(t).Ready(t)
			records, err := f.Consumer(t).Until(fixture.Within(t, fixture.Limit), func(all []*kgo.Record) bool { return len(all) >= 2*n })
			if err != nil {
				t.Fatal(err)
			}
			f.Settled(t)
			polls.Stop(t)
			first := make(map[outbox.EventID]*kgo.Record)
			for i, r := range records {
				id, ok := harness.EventIDOf(r)
				if !ok {
					t.Fatalf("record %d has no event id", i)
				}
				if streamed := first[id]; streamed != nil {
					same(t, streamed, r)
				} else {
					first[id] = r
				}
			}
			if len(first) != n || len(records) != 2*n {
				t.Errorf("%d records of %d events; want each of %d twice", len(records), len(first), n)
			}
		})
	}
}

func same(t *testing.T, streamed, polled *kgo.Record) {
	t.Helper()
	if streamed.Topic != polled.Topic || !bytes.Equal(streamed.Key, polled.Key) || !bytes.Equal(streamed.Value, polled.Value) ||
		(streamed.Value == nil) != (polled.Value == nil) || (streamed.Key == nil) != (polled.Key == nil) {
		t.Errorf("streamed %s %q %.80q, polled %s %q %.80q", streamed.Topic, streamed.Key, streamed.Value, polled.Topic, polled.Key, polled.Value)
	}
	want := make([]kgo.RecordHeader, 0, len(streamed.Headers))
	for _, h := range streamed.Headers {
		if h.Key != "position" {
			want = append(want, h)
		}
	}
	if len(want) != len(polled.Headers) {
		t.Fatalf("streamed headers %v, polled %v", want, polled.Headers)
	}
	for i, h := range polled.Headers {
		if h.Key != want[i].Key || !bytes.Equal(h.Value, want[i].Value) {
			t.Errorf("header %d: streamed %s=%q, polled %s=%q", i, want[i].Key, want[i].Value, h.Key, h.Value)
		}
	}
}
