package decoder

import (
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"walrelay/outbox"
)

var rowColumns = []Column{
	{"created_at", pgtype.TimestamptzOID}, {"payload", pgtype.ByteaOID}, {"unrelated", pgtype.PointOID}, {"id", pgtype.Int8OID},
	{"event_id", pgtype.UUIDOID}, {"aggregate_type", pgtype.TextOID}, {"aggregate_id", pgtype.UUIDOID},
	{"event_type", pgtype.TextOID}, {"published_at", pgtype.TimestamptzOID},
}

// A row of a query makes the event that an insert of it makes.
func TestRows(t *testing.T) {
	table := outbox.Table{Schema: "public", Name: "outbox"}
	cols := outbox.Columns{ID: "id", EventID: "event_id", AggregateType: "aggregate_type", AggregateID: "aggregate_id", EventType: "event_type",
		Payload: "payload", Headers: "headers", Topic: "topic", PartitionKey: "partition_key", CreatedAt: "created_at", PublishedAt: "published_at"}
	r, err := NewRows(table, cols, rowColumns)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, c := range r.Columns() {
		names = append(names, c.Name)
	}
	if want := 7; len(names) != want {
		t.Fatalf("columns %v", names)
	}
	values := func() [][]byte {
		return [][]byte{[]byte("2026-02-03 04:05:06.789+00"), []byte(`\x00ff`), []byte("42"),
			[]byte("01234567-89ab-cdef-0123-456789abcdef"), []byte("Order"), []byte("aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee"), []byte("created")}
	}
	ev, err := r.Row(values(), false)
	if err != nil {
		t.Fatal(err)
	}
	if ev.RowID != 42 || ev.ID.String() != "01234567-89ab-cdef-0123-456789abcdef" || string(ev.Payload) != "\x00\xff" || ev.Headers != nil || ev.Published ||
		string(ev.AggregateID) != "aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee" || !ev.CreatedAt.Equal(time.Date(2026, 2, 3, 4, 5, 6, 789e6, time.UTC)) {
		t.Errorf("event %+v", ev)
	}
	null := values()
	null[1] = nil
	if ev, err = r.Row(null, false); err != nil || ev.Payload != nil {
		t.Errorf("a tombstone: %q, %v", ev.Payload, err)
	}
	if ev, err = r.Row(values(), true); err != nil || ev.Payload != nil || ev.RowID != 42 {
		t.Errorf("a row that is too large: %+v, %v", ev, err)
	}
	null[4] = nil
	var fault *RowError
	if _, err = r.Row(null, false); !errors.As(err, &fault) || fault.RowID != 42 || fault.Column != "aggregate_type" {
		t.Errorf("a row without its type: %v", err)
	}
	if _, err = r.Row(null[1:], false); err == nil {
		t.Error("a row of too few columns was read")
	}
	cols.AggregateID = "unrelated"
	var shape *ShapeError
	if _, err := NewRows(table, cols, rowColumns); !errors.As(err, &shape) {
		t.Errorf("a point as aggregate id: %v", err)
	}
}
