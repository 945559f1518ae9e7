package faults

import (
	"testing"
	"time"

	"walrelay/test/harness"
	"walrelay/test/harness/oracle"
	"walrelay/test/integration/fixture"
)

// Columns come, move and go under load.
func TestAlterTable(t *testing.T) {
	t.Parallel()
	f := fixture.New(t)
	r := f.Relay(t).Ready(t)
	load := f.StartLoad(t, oracle.Load{Rows: 2, Pause: time.Millisecond})
	for _, ddl := range []string{
		"ALTER TABLE outbox ADD COLUMN tenant text NOT NULL DEFAULT 'none'",
		"ALTER TABLE outbox DROP COLUMN created_at, ADD COLUMN created_at timestamptz DEFAULT now()", // to the end
		"ALTER TABLE outbox DROP COLUMN tenant",
		"ALTER TABLE outbox ALTER COLUMN payload TYPE json USING payload::json", // rewrites the table
	} {
		moreEvents(t, f, 100)
		f.DB.Exec(t, ddl)
	}
	moreEvents(t, f, 100)
	committed := load.Stop()
	f.Settled(t)
	r.Stop(t)
	if n := r.Reconnects(t); n > 0 {
		t.Errorf("%d sessions were ended", n)
	}
	if v := f.Verify(t, committed); v.Duplicates > 0 {
		t.Errorf("%d events were published twice", v.Duplicates)
	}
}

// Rows that were committed are published although the table is emptied before they are settled.
func TestTruncate(t *testing.T) {
	t.Parallel()
	f := fixture.New(t)
	r := f.Relay(t).Ready(t)
	load := f.StartLoad(t, oracle.Load{Rows: 2, Pause: time.Millisecond})
	for range 5 {
		moreEvents(t, f, 50)
		f.DB.Exec(t, "TRUNCATE outbox")
	}
	committed := load.Stop()
	f.Settled(t)
	r.Stop(t)
	if v := f.Verify(t, committed); v.Duplicates > 0 {
		t.Errorf("%d events were published twice", v.Duplicates)
	}
}

const partitioned = `
CREATE TABLE outbox (
	id bigint GENERATED ALWAYS AS IDENTITY, event_id uuid NOT NULL DEFAULT gen_random_uuid(),
	aggregate_type text NOT NULL, aggregate_id text NOT NULL, event_type text NOT NULL, payload jsonb, headers jsonb,
	topic text, partition_key text, created_at timestamptz NOT NULL DEFAULT now(), published_at timestamptz,
	PRIMARY KEY (id, created_at)
) PARTITION BY RANGE (created_at);
CREATE TABLE outbox_past PARTITION OF outbox FOR VALUES FROM (MINVALUE) TO ('2020-01-01');`

// A partitioned outbox, published via its root, on every PostgreSQL. Partitions come while it streams.
func TestPartitionedOutbox(t *testing.T) {
	harness.EachVersion(t, func(t *testing.T, s *harness.Server) {
		t.Parallel()
		f := fixture.New(t, fixture.On(s), fixture.Bare())
		f.DB.Exec(t, partitioned) // the relay makes the publication
		r := f.Relay(t).Ready(t)
		f.DB.Exec(t, "INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload, created_at) VALUES ('Order', 'old', 'OrderPlaced', '{}', '2019-01-01')")
		f.DB.Exec(t, "CREATE TABLE outbox_now PARTITION OF outbox DEFAULT")
		load := oracle.Load{Rows: 5, Until: 500}
		load.Run(t.Context(), t, f.DB, f.Table)
		f.DB.Exec(t, "INSERT INTO outbox_now (id, aggregate_type, aggregate_id, event_type, payload) VALUES (1000000, 'Order', 'leaf', 'OrderPlaced', '{}')")
		f.Events(t, 502)
		f.Settled(t)
		r.Stop(t)
		if v := f.Verify(t, f.Rows(t)); v.Duplicates > 0 {
			t.Errorf("%d events were published twice", v.Duplicates)
		}
	})
}

// Every name is the operator's, and awkward.
func TestRenamedColumns(t *testing.T) {
	t.Parallel()
	f := fixture.New(t, fixture.Set("OUTBOX_TABLE", "sales.Event log"),
		fixture.Set("OUTBOX_COLUMN_ID", "Nr"), fixture.Set("OUTBOX_COLUMN_EVENT_ID", "event"), fixture.Set("OUTBOX_COLUMN_AGGREGATE_TYPE", "kind of thing"),
		fixture.Set("OUTBOX_COLUMN_AGGREGATE_ID", "thing"), fixture.Set("OUTBOX_COLUMN_EVENT_TYPE", "what"), fixture.Set("OUTBOX_COLUMN_PAYLOAD", "select"),
		fixture.Set("OUTBOX_COLUMN_HEADERS", "meta"), fixture.Set("OUTBOX_COLUMN_TOPIC", "wohin"), fixture.Set("OUTBOX_COLUMN_PARTITION_KEY", "schlüssel"),
		fixture.Set("OUTBOX_COLUMN_CREATED_AT", "seit"), fixture.Set("OUTBOX_COLUMN_PUBLISHED_AT", "gesendet"), fixture.Schema("sales"))
	r := f.Relay(t).Ready(t)
	f.DB.Exec(t, `INSERT INTO sales."Event log" ("kind of thing", thing, what, "select", meta, "schlüssel") SELECT 'Order', n, 'OrderPlaced', '{}', '{"a": "b"}', 'k' || n
		FROM generate_series(1, 100) n`)
	records := f.Events(t, 100)
	hasHeaders(t, records[0], map[string]string{"a": "b", "aggregate_type": "Order"})
	f.Settled(t)
	r.Stop(t)
	if v := f.Verify(t, f.Rows(t)); v.Duplicates > 0 {
		t.Errorf("%d events were published twice", v.Duplicates)
	}
}
