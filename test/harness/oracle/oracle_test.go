package oracle

import (
	"context"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"walrelay/internal/localdev"
	"walrelay/outbox"
	"walrelay/test/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Run(m)) }

func id(n byte) outbox.EventID { return outbox.EventID{n} }

func row(n byte, key string) Committed { return Committed{EventID: id(n), RowID: int64(n), Key: key} }

func record(n byte, key string, offset int64) Consumed {
	return Consumed{EventID: id(n), Topic: "orders", Key: key, Offset: offset}
}

func TestJudge(t *testing.T) {
	committed := []Committed{row(1, "a"), row(2, "b"), row(3, "a")}
	for name, c := range map[string]struct {
		consumed                                   []Consumed
		lost, phantom, swapped, rekeyed, duplicate int
	}{
		"all in order":                   {consumed: []Consumed{record(1, "a", 0), record(2, "b", 1), record(3, "a", 2)}},
		"offsets decide, not the slice":  {consumed: []Consumed{record(3, "a", 2), record(2, "b", 1), record(1, "a", 0)}},
		"keys do not order each other":   {consumed: []Consumed{record(2, "b", 0), record(1, "a", 1), record(3, "a", 2)}},
		"lost":                           {consumed: []Consumed{record(1, "a", 0), record(2, "b", 1)}, lost: 1},
		"swapped":                        {consumed: []Consumed{record(3, "a", 0), record(1, "a", 1), record(2, "b", 2)}, swapped: 1},
		"a repeat is no swap":            {consumed: []Consumed{record(1, "a", 0), record(2, "b", 1), record(3, "a", 2), record(1, "a", 3)}, duplicate: 1},
		"rolled back and yet on Kafka":   {consumed: []Consumed{record(1, "a", 0), record(2, "b", 1), record(3, "a", 2), record(9, "z", 3)}, phantom: 1},
		"under another key than the row": {consumed: []Consumed{record(1, "a", 0), record(2, "x", 1), record(3, "a", 2)}, rekeyed: 1},
	} {
		t.Run(name, func(t *testing.T) {
			v := Judge(committed, c.consumed)
			if len(v.Lost) != c.lost || len(v.Phantom) != c.phantom || len(v.Swapped) != c.swapped || len(v.Rekeyed) != c.rekeyed || v.Duplicates != c.duplicate {
				t.Errorf("%+v", v)
			}
		})
	}
}

// The oracle knows every committed row, of servers that stop and crash in the middle too.
func TestLoadKnowsWhatWasCommitted(t *testing.T) {
	server := harness.Fresh(t)
	db := server.Database(t)
	table := Migrate(t, db, harness.Name(t))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	committed := make(chan []Committed)
	loading, enough := context.WithCancel(ctx)
	go func() { committed <- Load{Rows: 3}.Run(loading, t, db, table) }()
	rows := "SELECT count(*) > 30 FROM outbox WHERE id > (SELECT coalesce(max(id), 0) FROM seen)"
	db.Exec(t, "CREATE TABLE seen (id bigint)")
	for _, disturb := range []func() error{
		func() error { return server.Control().Restart(ctx, localdev.Immediate) },
		func() error { return server.Control().Restart(ctx, localdev.Fast) },
		func() error {
			if err := server.Control().Kill(); err != nil {
				return err
			}
			return server.Control().Start(ctx)
		},
		func() error { return nil },
	} {
		db.Eventually(ctx, t, "t", rows)
		if err := disturb(); err != nil {
			t.Fatal(err)
		}
		db.Exec(t, "INSERT INTO seen SELECT max(id) FROM outbox")
	}
	enough()
	all := <-committed
	known := map[string]bool{}
	for _, c := range all {
		known[c.EventID.String()] = true
	}
	var inTable int
	for _, event := range strings.Split(db.Text(t, "SELECT string_agg(event_id::text, ',') FROM outbox"), ",") {
		inTable++
		if !known[event] {
			t.Errorf("row %s is committed and the oracle does not know it", event)
		}
	}
	if inTable != len(all) || len(known) != len(all) {
		t.Errorf("%d rows in the table, %d committed, %d different", inTable, len(all), len(known))
	}
	t.Logf("%d rows over three restarts", inTable)
}

func TestLoadWritesAsManyAsAsked(t *testing.T) {
	db := harness.Postgres(t).Database(t)
	table := Migrate(t, db, harness.Name(t))
	got := Load{Writers: 3, Rows: 7, Until: 100, PayloadSize: 500}.Run(t.Context(), t, db, table)
	if n := db.Text(t, "SELECT count(*) FROM outbox"); len(got) != 100 || n != "100" {
		t.Errorf("%d committed, %s in the table", len(got), n)
	}
	if size := db.Text(t, "SELECT max(octet_length(payload::text)) FROM outbox"); size != "500" {
		t.Errorf("payload of %s bytes", size)
	}
}

func TestSavepointKeepsOnlyTheFirstPart(t *testing.T) {
	db := harness.Postgres(t).Database(t)
	w := NewWriter(t, db, Migrate(t, db, harness.Name(t)))
	event := Event{AggregateType: "Order", AggregateID: "1", EventType: "Placed", Payload: `{"a": 1.10}`, Headers: `{"h": "v"}`, Topic: "t", PartitionKey: "p"}
	if err := w.Savepoint(t.Context(), []Event{event}, []Event{event, event}); err != nil {
		t.Fatal(err)
	}
	if got := w.Committed(); len(got) != 1 || got[0].Key != "p" || got[0].RowID == 0 {
		t.Errorf("committed %v", got)
	}
	if got := db.Text(t, "SELECT count(*) || event_id::text FROM outbox GROUP BY event_id"); got != "1"+w.Committed()[0].EventID.String() {
		t.Errorf("in the table: %s", got)
	}
}

// A commit that fails for a reason of the server's is not counted.
func TestFailedCommitIsNotCommitted(t *testing.T) {
	db := harness.Postgres(t).Database(t)
	w := NewWriter(t, db, Migrate(t, db, harness.Name(t)))
	j := &journal{}
	w.Keep(j)
	db.Exec(t, `CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE ''refused''; END';
		CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON outbox DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION refuse()`)
	event := Event{AggregateType: "Order", AggregateID: "1", EventType: "Placed", Payload: "{}"}
	if err := w.Commit(t.Context(), event); err == nil {
		t.Error("committed")
	}
	db.Exec(t, "DROP TRIGGER refuse ON outbox")
	if err := w.Commit(t.Context(), event); err != nil {
		t.Error(err)
	}
	if got := w.Committed(); len(got) != 1 {
		t.Errorf("committed %v", got)
	}
	if want := (journal{committing: 2, ended: []Outcome{{}, {Committed: true}}}); !reflect.DeepEqual(*j, want) {
		t.Errorf("the journal was told %+v, want %+v", *j, want)
	}
}

type journal struct {
	committing int // events
	ended      []Outcome
}

func (j *journal) Committing(events []Event, rows []Committed) error {
	j.committing += len(rows)
	return nil
}

func (j *journal) Ended(_ []Committed, o Outcome) error {
	j.ended = append(j.ended, o)
	return nil
}

// A commit whose answer never comes is asked for, and the journal knows that it was.
func TestUnansweredCommit(t *testing.T) {
	db := harness.Postgres(t).Database(t)
	w := NewWriter(t, db, Migrate(t, db, harness.Name(t)))
	j := &journal{}
	w.Keep(j)
	db.Exec(t, `CREATE FUNCTION leave() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NULL; END';
		CREATE CONSTRAINT TRIGGER leave AFTER INSERT ON outbox DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION leave()`)
	ready := make(chan struct{})
	close(ready)
	if err := w.CommitWhen(t.Context(), ready, Event{AggregateType: "Order", AggregateID: "1", EventType: "Placed"}); err == nil {
		t.Error("committed")
	}
	if want := []Outcome{{Unanswered: true}}; !reflect.DeepEqual(j.ended, want) || len(w.Committed()) > 0 {
		t.Errorf("ended as %+v, want %+v", j.ended, want)
	}
}

// A connection that has died between two transactions is no reason for the second to fail.
func TestWriterConnectsAnew(t *testing.T) {
	db := harness.Postgres(t).Database(t)
	w := NewWriter(t, db, Migrate(t, db, harness.Name(t)))
	event := Event{AggregateType: "Order", AggregateID: "1", EventType: "Placed", Payload: "{}"}
	for range 2 {
		if err := w.Commit(t.Context(), event); err != nil {
			t.Fatal(err)
		}
		db.Exec(t, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()")
	}
}
