package decoder

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"

	"walrelay/outbox"
)

func TestShapeErrors(t *testing.T) {
	without := func(r role) []column {
		columns := nativeColumns()
		return append(columns[:r:r], columns[r+1:]...)
	}
	with := func(r role, oid uint32) []column {
		columns := nativeColumns()
		columns[r].oid = oid
		return columns
	}
	for _, test := range []struct {
		name    string
		columns []column
		want    *ShapeError // only Column, Variable and Found; nil is no error
	}{
		{"all", nativeColumns(), nil},
		{"no id", without(roleID), &ShapeError{Column: "id", Variable: "OUTBOX_COLUMN_ID"}},
		{"no event id", without(roleEventID), &ShapeError{Column: "event_id", Variable: "OUTBOX_COLUMN_EVENT_ID"}},
		{"no aggregate type", without(roleAggregateType), &ShapeError{Column: "aggregate_type", Variable: "OUTBOX_COLUMN_AGGREGATE_TYPE"}},
		{"no aggregate id", without(roleAggregateID), &ShapeError{Column: "aggregate_id", Variable: "OUTBOX_COLUMN_AGGREGATE_ID"}},
		{"no event type", without(roleEventType), &ShapeError{Column: "event_type", Variable: "OUTBOX_COLUMN_EVENT_TYPE"}},
		{"no payload", without(rolePayload), &ShapeError{Column: "payload", Variable: "OUTBOX_COLUMN_PAYLOAD"}},
		{"no headers", without(roleHeaders), nil},
		{"no topic", without(roleTopic), nil},
		{"no partition key", without(rolePartitionKey), nil},
		{"no created at", without(roleCreatedAt), nil},
		{"no published at", without(rolePublishedAt), nil},
		{"no column", nil, &ShapeError{Column: "id", Variable: "OUTBOX_COLUMN_ID"}},
		{"uuid id", with(roleID, 2950), &ShapeError{Column: "id", Variable: "OUTBOX_COLUMN_ID", Found: "uuid"}},
		{"event id bigint", with(roleEventID, 20), &ShapeError{Column: "event_id", Variable: "OUTBOX_COLUMN_EVENT_ID", Found: "int8"}},
		{"aggregate id numeric", with(roleAggregateID, 1700), &ShapeError{Column: "aggregate_id", Variable: "OUTBOX_COLUMN_AGGREGATE_ID", Found: "numeric"}},
		{"payload xml", with(rolePayload, 142), &ShapeError{Column: "payload", Variable: "OUTBOX_COLUMN_PAYLOAD", Found: "xml"}},
		{"payload text[]", with(rolePayload, 1009), &ShapeError{Column: "payload", Variable: "OUTBOX_COLUMN_PAYLOAD", Found: "_text"}},
		{"payload unknown", with(rolePayload, 4999), &ShapeError{Column: "payload", Variable: "OUTBOX_COLUMN_PAYLOAD", Found: "oid 4999"}},
		{"headers text", with(roleHeaders, 25), &ShapeError{Column: "headers", Variable: "OUTBOX_COLUMN_HEADERS", Found: "text"}},
		{"created at date", with(roleCreatedAt, 1082), &ShapeError{Column: "created_at", Variable: "OUTBOX_COLUMN_CREATED_AT", Found: "date"}},
		{"published at boolean", with(rolePublishedAt, 16), &ShapeError{Column: "published_at", Variable: "OUTBOX_COLUMN_PUBLISHED_AT", Found: "bool"}},
		{"id of a type of its own", with(roleID, 20000), &ShapeError{Column: "id", Variable: "OUTBOX_COLUMN_ID", Found: "a type of its own (oid 20000)"}},
		{"id of a domain", with(roleID, 20001), nil},
		{"id of a domain over numeric", with(roleID, 20002), &ShapeError{Column: "id", Variable: "OUTBOX_COLUMN_ID", Found: "a domain over numeric"}},
		{"payload of an enum", with(rolePayload, 20000), nil},
		{"headers of a domain", with(roleHeaders, 20003), nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			d := newDecoder(0)
			for _, typ := range [][]byte{encodeType(20000, "public", "mood"), encodeType(20001, "", "int4"),
				encodeType(20002, "", "numeric"), encodeType(20003, "", "jsonb")} {
				if _, err := d.Decode(typ); err != nil {
					t.Fatal(err)
				}
			}
			kind, err := d.Decode(encodeRelation(1, "public", "outbox", test.columns))
			if test.want == nil {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			var shape *ShapeError
			if kind != KindRelation || !errors.As(err, &shape) {
				t.Fatalf("%s, %v", kind, err)
			}
			if shape.Column != test.want.Column || shape.Variable != test.want.Variable || shape.Missing != (test.want.Found == "") {
				t.Errorf("%+v", shape)
			}
			for _, part := range []string{"public.outbox", test.want.Column, test.want.Variable, test.want.Found, shape.Want} {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q does not say %q", err, part)
				}
			}
			// A row of it must not slip by as another relation's.
			if _, err := d.Decode(encodeInsert(1, nativeText())); !errors.As(err, &shape) {
				t.Errorf("its row: %v", err)
			}
		})
	}
}

// One column may play several roles: the uuid of a table can be event id and aggregate id at once.
func TestColumnOfSeveralRoles(t *testing.T) {
	columns := defaultColumns()
	columns.AggregateID, columns.PartitionKey = "event_id", "event_id"
	d := New(outbox.Table{Schema: "public", Name: "outbox"}, columns, 0)
	if _, err := d.Decode(encodeRelation(1, "public", "outbox", nativeColumns())); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Decode(encodeInsert(1, nativeBinary())); err != nil {
		t.Fatal(err)
	}
	ev := d.Event()
	if ev.ID.String() != exampleUUID || string(ev.AggregateID) != exampleUUID || string(ev.PartitionKey) != exampleUUID {
		t.Errorf("%s", describeEvent(ev))
	}
}

// The table is renamed away while the stream runs, and another takes its name (H21). Rows of the old
// one are no events from then on, and the old name's new owner is the outbox.
func TestTableSwapped(t *testing.T) {
	d := described(t, nativeColumns(), 0)
	ours := func(id uint32) bool {
		t.Helper()
		if _, err := d.Decode(encodeInsert(id, nativeText())); err != nil {
			t.Fatal(err)
		}
		return d.Event() != nil
	}
	decode := func(msg []byte) {
		t.Helper()
		if _, err := d.Decode(msg); err != nil {
			t.Fatal(err)
		}
	}
	if !ours(1) {
		t.Fatal("the table's row is not ours")
	}
	decode(encodeRelation(1, "public", "outbox_old", nativeColumns()))
	if ours(1) {
		t.Error("a row of the table that was renamed is ours")
	}
	decode(encodeRelation(2, "public", "outbox", nativeColumns()))
	if !ours(2) || ours(1) {
		t.Error("the table that took the name is not ours, or the old one is")
	}
	decode(encodeRelation(3, "other", "outbox", nativeColumns()))
	if ours(3) || !ours(2) {
		t.Error("a table of another schema is ours")
	}
	decode(encodeRelation(3, "public", "outbox", nativeColumns()))
	if !ours(3) || ours(2) || ours(1) || !ours(3) {
		t.Error("two tables have our name")
	}
	decode(encodeRelation(1, "public", "outbox", nativeColumns()))
	if !ours(1) || ours(3) {
		t.Error("the table that got its name back is not ours")
	}
}

func TestTruncateOfOthers(t *testing.T) {
	d := described(t, nativeColumns(), 0)
	for relations, want := range map[string]bool{"\x00\x00\x00\x00": false, "\x00\x00\x00\x01\x00\x00\x00\x02": true, "\x00\x00\x00\x02": false} {
		msg := binary.BigEndian.AppendUint32([]byte{'T'}, uint32(len(relations)/4))
		if _, err := d.Decode(append(append(msg, 0), relations...)); err != nil || d.Truncated() != want {
			t.Errorf("%q: %t, %v", relations, d.Truncated(), err)
		}
	}
}

// The memory for types of the user's is bounded, and a type that stops being a domain is forgotten.
func TestTypesAreBounded(t *testing.T) {
	d := newDecoder(0)
	for i := range uint32(3 * maxTypes) {
		if _, err := d.Decode(encodeType(firstUnfixedOID+i, "", "int8")); err != nil {
			t.Fatal(err)
		}
	}
	if len(d.types) > maxTypes {
		t.Errorf("%d types are remembered", len(d.types))
	}
	last := uint32(firstUnfixedOID + 3*maxTypes - 1)
	if d.typeOf(last) != typeInt8 {
		t.Error("the newest domain is not known")
	}
	if _, err := d.Decode(encodeType(last, "public", "mood")); err != nil || d.typeOf(last) != typeUser {
		t.Errorf("an enum is still a domain (%v)", err)
	}
	if _, err := d.Decode(encodeType(last, "", strings.Repeat("x", 1000))); err != nil || d.typeOf(last) != typeUser {
		t.Errorf("a long name is remembered (%v)", err)
	}
}

// A table of many columns is listed in part.
func TestManyColumns(t *testing.T) {
	var columns []column
	for i := range 1600 {
		columns = append(columns, column{fmt.Sprintf("c%d", i), 25})
	}
	_, err := newDecoder(0).Decode(encodeRelation(1, "public", "outbox", columns))
	if err == nil || !strings.Contains(err.Error(), "c19, and 1580 more") {
		t.Error(err)
	}
}

// A type is the same by its id and, as the base of a domain, by its name.
func TestTypesByIDAndName(t *testing.T) {
	for name, oid := range map[string]uint32{"text": 25, "varchar": 1043, "bpchar": 1042, "name": 19, "int2": 21, "int4": 23, "int8": 20,
		"uuid": 2950, "json": 114, "jsonb": 3802, "bytea": 17, "timestamp": 1114, "timestamptz": 1184, "numeric": 1700} {
		d := newDecoder(0)
		if _, err := d.Decode(encodeType(20000, "", name)); err != nil {
			t.Fatal(err)
		}
		if got, want := d.typeOf(20000), d.typeOf(oid); got != want || (got == typeOther) != (name == "numeric") {
			t.Errorf("%s: %d by name, %d by id", name, got, want)
		}
	}
}

// CheckShape says of the catalogue's columns what Decode says of the published ones.
func TestCheckShape(t *testing.T) {
	table := outbox.Table{Schema: "public", Name: "outbox"}
	columns := func(change func([]column) []column) (catalogue []Column, published []column) {
		published = change(nativeColumns())
		for _, c := range published {
			catalogue = append(catalogue, Column{c.name, c.oid})
		}
		return catalogue, published
	}
	for name, change := range map[string]func([]column) []column{
		"sound":      func(c []column) []column { return c },
		"missing":    func(c []column) []column { return c[1:] },
		"wrong type": func(c []column) []column { c[rolePayload].oid = 1700; return c },
		"none":       func([]column) []column { return nil },
	} {
		catalogue, published := columns(change)
		_, want := newDecoder(0).Decode(encodeRelation(1, "public", "outbox", published))
		got := CheckShape(table, defaultColumns(), catalogue)
		if fmt.Sprint(got) != fmt.Sprint(want) || (got == nil) != (name == "sound") {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}
