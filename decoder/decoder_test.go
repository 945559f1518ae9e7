package decoder

import (
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"walrelay/outbox"
)

func newDecoder(rowLimit int) *Decoder {
	return New(outbox.Table{Schema: "public", Name: "outbox"}, defaultColumns(), rowLimit)
}

// described is a decoder that knows the table, with these columns, as relation 1.
func described(tb testing.TB, columns []column, rowLimit int) *Decoder {
	tb.Helper()
	d := newDecoder(rowLimit)
	if _, err := d.Decode(encodeRelation(1, "public", "outbox", columns)); err != nil {
		tb.Fatal(err)
	}
	return d
}

func TestTextAndBinaryGiveTheSameEvent(t *testing.T) {
	d := described(t, nativeColumns(), 0)
	var lines []string
	for _, row := range [][]field{nativeText(), nativeBinary()} {
		if _, err := d.Decode(encodeInsert(1, row)); err != nil {
			t.Fatal(err)
		}
		d.event.Size = 0
		lines = append(lines, describeEvent(d.Event()))
	}
	if lines[0] != lines[1] {
		t.Errorf("text   %s\nbinary %s", lines[0], lines[1])
	}
	if want := time.Date(2026, 11, 30, 10, 0, 0, 123456000, time.UTC); !d.Event().CreatedAt.Equal(want) {
		t.Errorf("created at %s, want %s", d.Event().CreatedAt, want)
	}
}

// set is the row with one column changed.
func set(row []field, r role, f field) []field {
	row = slices.Clone(row)
	row[r] = f // nativeColumns stand in the order of the roles
	return row
}

// A row with a column that cannot be read is a RowError with both ids as far as they can be read,
// wherever the column stands, and the event holds the rest.
func TestRowErrors(t *testing.T) {
	for _, test := range []struct {
		name   string
		row    []field
		column string
		err    error
	}{
		{"row id NULL", set(nativeText(), roleID, null()), "id", errNull},
		{"row id unsent", set(nativeText(), roleID, unsent()), "id", errUnsent},
		{"row id empty", set(nativeText(), roleID, text("")), "id", errInteger},
		{"row id minus", set(nativeText(), roleID, text("-")), "id", errInteger},
		{"row id hexadecimal", set(nativeText(), roleID, text("2a")), "id", errInteger},
		{"row id of 65 bits", set(nativeText(), roleID, text("9223372036854775808")), "id", errInteger},
		{"row id of many bits", set(nativeText(), roleID, text(strings.Repeat("9", 100))), "id", errInteger},
		{"row id of 4 bytes", set(nativeBinary(), roleID, wire("\x00\x00\x00\x01")), "id", errWidth},
		{"event id NULL", set(nativeText(), roleEventID, null()), "event_id", errNull},
		{"event id short", set(nativeText(), roleEventID, text(exampleUUID[:35])), "event_id", errUUID},
		{"event id no hex", set(nativeText(), roleEventID, text("g"+exampleUUID[1:])), "event_id", errUUID},
		{"event id dashes", set(nativeText(), roleEventID, text(strings.ReplaceAll(exampleUUID, "-", "_"))), "event_id", errUUID},
		{"event id of 15 bytes", set(nativeBinary(), roleEventID, wire(exampleUUID16[1:])), "event_id", errWidth},
		{"aggregate type NULL", set(nativeText(), roleAggregateType, null()), "aggregate_type", errNull},
		{"aggregate id NULL", set(nativeText(), roleAggregateID, null()), "aggregate_id", errNull},
		{"event type NULL", set(nativeText(), roleEventType, null()), "event_type", errNull},
		{"payload unsent", set(nativeText(), rolePayload, unsent()), "payload", errUnsent},
		{"payload jsonb without version", set(nativeBinary(), rolePayload, wire("")), "payload", errJSONB},
		{"payload jsonb version 2", set(nativeBinary(), rolePayload, wire("\x02{}")), "payload", errJSONB},
		{"headers jsonb version 2", set(nativeBinary(), roleHeaders, wire("\x02{}")), "headers", errJSONB},
		{"created at German", set(nativeText(), roleCreatedAt, text("30.11.2026 10:00:00 UTC")), "created_at", errTimestamp},
		{"created at of 4 bytes", set(nativeBinary(), roleCreatedAt, wire("\x00\x00\x00\x00")), "created_at", errWidth},
		{"published at unsent", set(nativeText(), rolePublishedAt, unsent()), "published_at", errUnsent},
		{"two columns", set(set(nativeText(), rolePayload, unsent()), roleEventID, text("")), "event_id", errUUID},
	} {
		t.Run(test.name, func(t *testing.T) {
			d := described(t, nativeColumns(), 0)
			kind, err := d.Decode(encodeInsert(1, test.row))
			var row *RowError
			if kind != KindInsert || !errors.As(err, &row) {
				t.Fatalf("%s, %v", kind, err)
			}
			if row.Column != test.column || !errors.Is(err, test.err) {
				t.Errorf("got %v, want column %q: %v", err, test.column, test.err)
			}
			if test.column != "id" && row.RowID != 42 {
				t.Errorf("row id %d is not known", row.RowID)
			}
			if test.column != "event_id" && row.EventID.String() != exampleUUID {
				t.Errorf("event id %s is not known", row.EventID)
			}
			if ev := d.Event(); ev == nil || string(ev.PartitionKey) != "k" || string(ev.Topic) != "t" {
				t.Errorf("the event does not hold what could be read: %+v", ev)
			}
			if _, err := d.Decode(encodeInsert(1, nativeText())); err != nil {
				t.Errorf("the row behind it: %v", err)
			}
		})
	}
}

func TestKeysAndDocumentsByType(t *testing.T) {
	for _, test := range []struct {
		name string
		role role
		oid  uint32
		f    field
		want string // as value prints it
	}{
		{"bigint key", roleAggregateID, 20, wire("\xff\xff\xff\xff\xff\xff\xff\xff"), `"-1"`},
		{"smallest bigint key", roleAggregateID, 20, wire("\x80\x00\x00\x00\x00\x00\x00\x00"), `"-9223372036854775808"`},
		{"bigint key in text", roleAggregateID, 20, text("-1"), `"-1"`},
		{"integer key", roleAggregateID, 23, wire("\x00\x00\x00\x07"), `"7"`},
		{"smallint key", rolePartitionKey, 21, wire("\xff\xfe"), `"-2"`},
		{"uuid key", roleAggregateID, 2950, wire(exampleUUID16), `"` + exampleUUID + `"`},
		{"uuid key in text", roleAggregateID, 2950, text(exampleUUID), `"` + exampleUUID + `"`},
		{"key of a type of the user's", rolePartitionKey, 20000, wire("k"), `"k"`},
		{"char key", roleAggregateID, 1042, text("k  "), `"k  "`},
		{"bytea in text", rolePayload, 17, text(`\x00ff5c`), "x00ff5c"},
		{"bytea in binary", rolePayload, 17, wire("\x00\xff"), "x00ff"},
		{"empty bytea in text", rolePayload, 17, text(`\x`), `""`},
		{"jsonb in binary", rolePayload, 3802, wire("\x01{}"), `"{}"`},
		{"json in binary", rolePayload, 114, wire("\x01{}"), `"\x01{}"`},
		{"varchar", rolePayload, 1043, text(""), `""`},
		{"payload of a type of the user's", rolePayload, 20000, text("x"), `"x"`},
		{"headers as json", roleHeaders, 114, wire("{}"), `"{}"`},
		{"topic as name", roleTopic, 19, text("a"), `"a"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			columns := nativeColumns()
			columns[test.role].oid = test.oid
			d := described(t, columns, 0)
			if _, err := d.Decode(encodeInsert(1, set(nativeText(), test.role, test.f))); err != nil {
				t.Fatal(err)
			}
			ev := d.Event()
			got := map[role][]byte{roleAggregateID: ev.AggregateID, rolePartitionKey: ev.PartitionKey, rolePayload: ev.Payload,
				roleHeaders: ev.Headers, roleTopic: ev.Topic}[test.role]
			if value(got) != test.want {
				t.Errorf("got %s, want %s", value(got), test.want)
			}
		})
	}
}

// bytea_output=escape would hand out the wrong bytes; a digit that is none must not be half a payload.
func TestByteaMustBeHex(t *testing.T) {
	columns := nativeColumns()
	columns[rolePayload].oid = 17
	for _, payload := range []string{"", "abc", `\x0`, `\x0g`, `\\`, `\`} {
		d := described(t, columns, 0)
		_, err := d.Decode(encodeInsert(1, set(nativeText(), rolePayload, text(payload))))
		if !errors.Is(err, errHex) || d.Event().Payload != nil {
			t.Errorf("%q: %v, payload %q", payload, err, d.Event().Payload)
		}
	}
}

func TestParseInteger(t *testing.T) {
	for text, want := range map[string]int64{"0": 0, "-0": 0, "7": 7, "-7": -7, "9223372036854775807": math.MaxInt64,
		"-9223372036854775808": math.MinInt64, "0000000000000000000000001": 1} {
		if got, err := parseInteger([]byte(text)); err != nil || got != want {
			t.Errorf("%s: %d, %v", text, got, err)
		}
	}
	for _, text := range []string{"-9223372036854775809", "18446744073709551616", "9223372036854775808", "1 ", "+1", "--1", "1.0"} {
		if got, err := parseInteger([]byte(text)); err == nil {
			t.Errorf("%s: %d", text, got)
		}
	}
}

// Every message but Update and Delete must end where its layout ends, and each cut of it is an error
// that names the message.
func TestCutAndSurplus(t *testing.T) {
	for _, msg := range examples() {
		kind := Kind(msg[0])
		for n := 1; n < len(msg); n++ {
			d := described(t, nativeColumns(), 0)
			if _, err := d.Decode(spare(msg[:n])); err == nil || !strings.Contains(err.Error(), kind.String()) {
				t.Errorf("%s cut to %d bytes: %v", kind, n, err)
			}
			if d.Event() != nil || d.Truncated() {
				t.Errorf("%s cut to %d bytes has a result", kind, n)
			}
		}
		d := described(t, nativeColumns(), 0)
		if _, err := d.Decode(append(spare(msg), 0)); err == nil {
			t.Errorf("%s with a byte too many is accepted", kind)
		}
		if _, err := d.Decode(spare(msg)); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

// examples has one whole message of each kind that is read, for a decoder that knows relation 1.
func examples() [][]byte {
	begin := append([]byte{'B'}, make([]byte, 20)...)
	commit := append([]byte{'C'}, make([]byte, 25)...)
	truncate := []byte{'T', 0, 0, 0, 2, 0, 0, 0, 0, 9, 0, 0, 0, 1}
	origin := append(append([]byte{'O'}, make([]byte, 8)...), "node\x00"...)
	message := append(append([]byte{'M', 1}, make([]byte, 8)...), "prefix\x00\x00\x00\x00\x02ab"...)
	return [][]byte{begin, commit, truncate, origin, message, encodeType(20000, "public", "mood"),
		encodeRelation(1, "public", "outbox", nativeColumns()), encodeInsert(1, nativeText()), encodeInsert(1, nativeBinary())}
}

func TestMalformed(t *testing.T) {
	for name, msg := range map[string][]byte{
		"nothing":              {},
		"stream start":         {'S', 0, 0, 0, 1, 1},
		"insert of nobody":     encodeInsert(7, nativeText()),
		"insert of relation 0": encodeInsert(0, nativeText()),
		"relation 0":           encodeRelation(0, "public", "outbox", nativeColumns()),
		"too few columns":      encodeInsert(1, nativeText()[:10]),
		"too many columns":     encodeInsert(1, append(nativeText(), null())),
		"old tuple":            append([]byte{'I', 0, 0, 0, 1, 'K'}, encodeInsert(1, nativeText())[6:]...),
		"form of a column":     encodeInsert(1, set(nativeText(), rolePayload, field{form: 'x'})),
		"length of a column": append(append([]byte{'I', 0, 0, 0, 1, 'N', 0, 11, 't'}, binary.BigEndian.AppendUint32(nil, math.MaxUint32)...),
			"42"...),
		"number of relations": {'T', 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 1},
	} {
		d := described(t, nativeColumns(), 0)
		_, err := d.Decode(msg)
		var row *RowError
		var shape *ShapeError
		if err == nil || errors.As(err, &row) || errors.As(err, &shape) {
			t.Errorf("%s: %v is not a malformed stream", name, err)
		}
		if d.Event() != nil {
			t.Errorf("%s: there is an event", name)
		}
	}
}

// Updates and deletes are named and not looked at; the event of the insert before is gone.
func TestPassedOver(t *testing.T) {
	d := described(t, nativeColumns(), 0)
	if _, err := d.Decode(encodeInsert(1, nativeText())); err != nil || d.Event() == nil {
		t.Fatal(err)
	}
	for _, kind := range []Kind{KindUpdate, KindDelete} {
		got, err := d.Decode([]byte{byte(kind)})
		if got != kind || err != nil || d.Event() != nil {
			t.Errorf("%s: %s, %v, %v", kind, got, err, d.Event())
		}
	}
}
