package polling

import (
	"fmt"
	"strings"
	"testing"

	"walrelay/test/harness/oracle"
	"walrelay/test/integration/fixture"
)

// H10: a row with a lower id is committed after one with a higher id was published. No mark of how high
// the relay has got may pass over it.
func TestH10LowerIDCommitsLater(t *testing.T) {
	t.Parallel()
	f := polling(t)
	early, late := f.Writer(t), f.Writer(t)
	r := f.Relay(t).Ready(t)
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- early.CommitWhen(t.Context(), ready, order("early")) }()
	await(t, "the first transaction has its id", func() bool {
		return f.DB.Text(t, "SELECT last_value > 0 AND is_called FROM outbox_id_seq") == "t"
	})
	commit(t, late, order("late"))
	f.Events(t, 1)
	f.Settled(t)
	close(ready)
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	f.Settled(t)
	r.Stop(t)
	committed := append(early.Committed(), late.Committed()...)
	if committed[0].RowID > committed[1].RowID {
		t.Fatalf("the first transaction has row %d, the second %d", committed[0].RowID, committed[1].RowID)
	}
	if v := f.Verify(t, committed); v.Duplicates > 0 {
		t.Errorf("%d events were published twice", v.Duplicates)
	}
}

// H10: a row that somebody has locked is published, in its order, and settled when the lock is gone;
// until then no poll takes it for new.
func TestH10LockedRow(t *testing.T) {
	t.Parallel()
	for _, after := range []string{"mark", "delete"} {
		t.Run(after, func(t *testing.T) {
			t.Parallel()
			f := polling(t, fixture.Set("RELAY_AFTER_PUBLISH", after))
			w := f.Writer(t)
			commit(t, w, order("1"), order("1"), order("1"))
			locker := f.DB.Connect(t)
			tx, err := locker.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tx.Exec(t.Context(), "SELECT FROM outbox WHERE id = $1 FOR UPDATE", w.Committed()[0].RowID); err != nil {
				t.Fatal(err)
			}
			r := f.Relay(t).Ready(t)
			f.Events(t, 3)
			await(t, "two rows are settled", func() bool { return r.Metric(t, "walrelay_rows_settled_total") == 2 })
			polls := r.Metric(t, "walrelay_polls_total")
			await(t, "the table was polled again", func() bool { return r.Metric(t, "walrelay_polls_total") >= polls+3 })
			if n := r.Status().Unsettled; n != 1 {
				t.Errorf("%d rows are unsettled, want 1", n)
			}
			if err := tx.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
			f.Settled(t)
			r.Stop(t)
			if v := f.Verify(t, w.Committed()); v.Duplicates > 0 {
				t.Errorf("%d events were published twice", v.Duplicates)
			}
		})
	}
}

// A row that cannot be published ends the relay at its name, behind everything before it and before
// everything behind it; marked by an operator it is passed over.
func TestPoisonRow(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*oracle.Event){
		"unroutable":        func(e *oracle.Event) { e.Topic = "not a topic" },
		"too-large":         func(e *oracle.Event) { e.Payload = `"` + strings.Repeat("x", 1_100_000) + `"` },
		"too-large-to-read": func(e *oracle.Event) { e.Payload = `"` + strings.Repeat("x", 4_100_000) + `"` },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := polling(t)
			w := f.Writer(t)
			poison := order("1")
			spoil(&poison)
			commit(t, w, order("1"), poison, order("1"))
			guilty := w.Committed()[1]
			err := f.Relay(t).Wait(t)
			halts(t, err, guilty)
			if !strings.Contains(err.Error(), fmt.Sprintf(`UPDATE "public"."outbox" SET "published_at" = now() WHERE "id" = %d`, guilty.RowID)) {
				t.Errorf("the relay does not say how to give the event up: %v", err)
			}
			f.DB.Eventually(fixture.Within(t, fixture.Limit), t, "1", "SELECT count(*) FROM outbox WHERE published_at IS NOT NULL")
			f.DB.Exec(t, fmt.Sprintf("UPDATE outbox SET published_at = now() WHERE id = %d", guilty.RowID))
			r := f.Relay(t).Ready(t)
			f.Settled(t)
			r.Stop(t)
			f.Verify(t, []oracle.Committed{w.Committed()[0], w.Committed()[2]})
		})
	}
}

// Rows of 900 kB, of which some take a few kilobytes in the table: what is read at once is bounded.
func TestLargeRows(t *testing.T) {
	t.Parallel()
	f := polling(t)
	f.DB.Exec(t, `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload)
		SELECT 'Order', (n % 5)::text, 'created', to_jsonb(CASE WHEN n % 2 = 0 THEN repeat('x', 900000)
			ELSE (SELECT string_agg(md5(random()::text), '') FROM generate_series(1, 28000 + 0 * n)) END) FROM generate_series(1, 60) n`)
	b := f.Binary(t).Ready(t)
	f.Settled(t)
	peak := fixture.PeakMemory(b.Pid())
	b.Stop(t)
	if v := f.Verify(t, f.Rows(t)); v.Duplicates > 0 {
		t.Errorf("%d events were published twice", v.Duplicates)
	}
	t.Logf("peak RSS %d MiB", peak>>20)
}

// The same, in order, through a partitioned table and columns with other names.
func TestForeignTable(t *testing.T) {
	t.Parallel()
	f := polling(t, fixture.Bare(), fixture.Set("OUTBOX_COLUMN_ID", "seq"), fixture.Set("OUTBOX_COLUMN_PUBLISHED_AT", "sent at"))
	f.DB.Exec(t, `CREATE TABLE outbox (seq bigint GENERATED ALWAYS AS IDENTITY, event_id uuid NOT NULL DEFAULT gen_random_uuid(),
		aggregate_type varchar(20) NOT NULL, aggregate_id bigint NOT NULL, event_type text NOT NULL, payload json, "sent at" timestamptz, PRIMARY KEY (seq, aggregate_id)) PARTITION BY HASH (aggregate_id);
		CREATE TABLE outbox_0 PARTITION OF outbox FOR VALUES WITH (MODULUS 2, REMAINDER 0);
		CREATE TABLE outbox_1 PARTITION OF outbox FOR VALUES WITH (MODULUS 2, REMAINDER 1);
		INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) SELECT 'Order', n % 10, 'created', json_build_object('n', n) FROM generate_series(1, 5000) n`)
	r := f.Relay(t).Ready(t)
	r.Await(t, `CREATE INDEX CONCURRENTLY ON \"public\".\"outbox\" (\"seq\") WHERE \"sent at\" IS NULL`)
	f.DB.Eventually(fixture.Within(t, fixture.Limit), t, "0", `SELECT count(*) FROM outbox WHERE "sent at" IS NULL`)
	r.Stop(t)
	records := f.Events(t, 5000)
	if len(records) != 5000 {
		t.Errorf("%d records of 5000 rows", len(records))
	}
	last := make(map[string]int)
	for _, r := range records {
		var n int
		if _, err := fmt.Sscanf(string(r.Value), `{"n" : %d}`, &n); err != nil {
			t.Fatal(err)
		}
		if key := string(r.Key); n <= last[key] {
			t.Fatalf("key %s: row %d after row %d", key, n, last[key])
		} else {
			last[key] = n
		}
	}
}
