package decoder

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"walrelay/outbox"
)

// largeFirst is a table whose payload stands in front of the ids.
func largeFirst() []column {
	return []column{{"payload", 3802}, {"headers", 3802}, {"aggregate_type", 25}, {"event_type", 25}, {"id", 20}, {"event_id", 2950},
		{"aggregate_id", 25}}
}

func largeRow(payload string) []byte {
	return encodeInsert(1, []field{text(payload), text(`{"h": "1"}`), text("order"), text("created"), text("42"), text(exampleUUID), text("o-42")})
}

// readers are the ways in which a session may hand the message over.
func readers(b []byte) map[string]io.Reader {
	return map[string]io.Reader{
		"plain":    bytes.NewReader(b),
		"buffered": bufio.NewReaderSize(bytes.NewReader(b), 64),
		"one byte": iotest.OneByteReader(bytes.NewReader(b)),
	}
}

func TestDecodeLargeKeepsTheIDs(t *testing.T) {
	msg := largeRow(strings.Repeat("x", 200_000))
	for name, r := range readers(append(spare(msg), "next"...)) {
		d := described(t, largeFirst(), 1000)
		kind, err := d.DecodeLarge(r, len(msg))
		if kind != KindInsert || err != nil {
			t.Fatalf("%s: %s, %v", name, kind, err)
		}
		ev := d.Event()
		if ev.RowID != 42 || ev.ID.String() != exampleUUID || string(ev.AggregateType) != "order" || string(ev.AggregateID) != "o-42" ||
			string(ev.EventType) != "created" || ev.Payload != nil || ev.Headers != nil || ev.Size != len(msg) {
			t.Errorf("%s: %s", name, describeEvent(ev))
		}
		if rest, _ := io.ReadAll(r); string(rest) != "next" {
			t.Errorf("%s: %q is left", name, rest)
		}
	}
}

// Whatever the message is, and whatever is wrong with it, what stands behind it is next.
func TestDecodeLargeConsumesTheMessage(t *testing.T) {
	whole := largeRow(strings.Repeat("x", 10_000))
	relation := encodeRelation(1, "public", "outbox", nativeColumns())
	for _, test := range []struct {
		name string
		msg  []byte
		want string // part of the error
	}{
		{"row", whole, ""},
		{"row cut in the payload", whole[:5000], "a column is cut short"},
		{"row cut in a length", whole[:insertHeader+3], "length of a column is cut short"},
		{"row cut behind the payload", largeRow("x")[:insertHeader+6], "columns are missing"},
		{"row cut in the head", whole[:5], "head is cut short"},
		{"row and more", append(spare(whole), "surplus"...), surplus},
		{"row of a form unknown", bytes.Replace(whole, []byte("t\x00\x00\x00\x05order"), []byte("?\x00\x00\x00\x05order"), 1), "unknown form"},
		{"row of an unknown relation", encodeInsert(9, nativeText()), "has not been described"},
		{"row with other columns", encodeInsert(1, nativeText()), "11 columns where the relation has 7"},
		{"row of another", encodeInsert(2, nativeText()), ""},
		{"update", append([]byte{'U'}, whole...), ""},
		{"delete", append([]byte{'D'}, whole...), ""},
		{"message", append([]byte{'M'}, whole...), ""},
		{"begin", append([]byte{'B'}, whole...), surplus},
		{"begin of 2 MiB", append([]byte{'B'}, make([]byte, 2<<20)...), "more than any has"},
		{"relation", relation, ""},
		{"relation cut", relation[:40], "has no end"},
		{"relation of 2 MiB", append(spare(relation), make([]byte, 2<<20)...), "more than any has"},
		{"unknown", append([]byte{'S'}, whole...), "unknown message"},
		{"truncate", []byte{'T', 0, 0, 0, 1, 0, 0, 0, 0, 1}, ""},
	} {
		for name, r := range readers(append(spare(test.msg), "next"...)) {
			if name == "one byte" && len(test.msg) > wholeLimit {
				continue // millions of reads
			}
			d := described(t, largeFirst(), 10)
			if _, err := d.Decode(encodeRelation(2, "public", "other", nativeColumns())); err != nil {
				t.Fatal(err)
			}
			_, err := d.DecodeLarge(r, len(test.msg))
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("%s, %s: %v, want %q", test.name, name, err, test.want)
			}
			if rest, _ := io.ReadAll(r); string(rest) != "next" {
				t.Errorf("%s, %s: %d bytes are left", test.name, name, len(rest))
			}
			if _, err := d.Decode(spare(relation)); err != nil {
				t.Errorf("%s, %s: the message behind it: %v", test.name, name, err)
			}
		}
	}
}

// The connection breaks, or gives up, in the middle of a row: the error is the connection's, at
// whatever byte it happens, and there is no event.
func TestDecodeLargeReaderFails(t *testing.T) {
	broken := errors.New("broken")
	msg := largeRow(strings.Repeat("x", 100))
	for n := range msg {
		for name, r := range readers(msg[:n]) {
			d := described(t, largeFirst(), 10)
			if _, err := d.DecodeLarge(io.MultiReader(r, iotest.ErrReader(broken)), len(msg)); !errors.Is(err, broken) {
				t.Errorf("%s, broken at %d: %v", name, n, err)
			}
			if d.Event() != nil {
				t.Errorf("%s, broken at %d: there is an event", name, n)
			}
		}
		for name, r := range readers(msg[:n]) {
			d := described(t, largeFirst(), 10)
			if _, err := d.DecodeLarge(r, len(msg)); !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("%s, ends at %d: %v", name, n, err)
			}
		}
	}
	if _, err := described(t, largeFirst(), 10).DecodeLarge(strings.NewReader("x"), 0); err == nil {
		t.Error("a message of no bytes is accepted")
	}
}

// A column other than the payload that is too long to be kept reads as absent; an id that is too long
// is no id.
func TestDecodeLargeLongColumns(t *testing.T) {
	long := strings.Repeat("1", keepLimit+1)
	d := described(t, nativeColumns(), 1000)
	msg := encodeInsert(1, set(set(nativeText(), roleAggregateID, text(long)), rolePartitionKey, text(long[:keepLimit])))
	if _, err := d.DecodeLarge(bytes.NewReader(msg), len(msg)); err != nil {
		t.Fatal(err)
	}
	if ev := d.Event(); ev.AggregateID != nil || len(ev.PartitionKey) != keepLimit || ev.RowID != 42 {
		t.Errorf("%s", describeEvent(ev))
	}
	for _, r := range []role{roleID, roleEventID, roleCreatedAt} {
		msg := encodeInsert(1, set(nativeText(), r, text(long)))
		_, err := d.DecodeLarge(bytes.NewReader(msg), len(msg))
		var row *RowError
		if !errors.As(err, &row) || !errors.Is(err, errTooLong) || d.Event() == nil {
			t.Errorf("long %s: %v", d.columns[r], err)
		}
	}
}

// endless is a row that is made up as it is read: 400 MB of payload, and then the ids.
type endless struct {
	head, tail []byte
	body       int
}

func (e *endless) Read(b []byte) (int, error) {
	switch {
	case len(e.head) > 0:
		n := copy(b, e.head)
		e.head = e.head[n:]
		return n, nil
	case e.body > 0:
		n := min(len(b), e.body)
		e.body -= n
		return n, nil
	case len(e.tail) > 0:
		n := copy(b, e.tail)
		e.tail = e.tail[n:]
		return n, nil
	}
	return 0, io.EOF
}

// H17: one row of hundreds of megabytes must not take memory, nor allocate the second time.
func TestDecodeLargeMemory(t *testing.T) {
	const body = 400 << 20
	row := largeRow("")
	head, tail := spare(row[:insertHeader+5]), row[insertHeader+5:]
	copy(head[insertHeader+1:], []byte{body >> 24, body >> 16 & 0xff, body >> 8 & 0xff, body & 0xff})
	n := len(row) + body
	d := described(t, largeFirst(), 1000)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := d.DecodeLarge(&endless{head, tail, body}, n); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if got := after.TotalAlloc - before.TotalAlloc; got > 64<<10 {
		t.Errorf("%d bytes were allocated", got)
	}
	if ev := d.Event(); ev.RowID != 42 || string(ev.AggregateID) != "o-42" || ev.Size != n {
		t.Errorf("%s", describeEvent(ev))
	}
}

// Every recorded message goes through DecodeLarge as through Decode.
func TestDecodeLargeRecordings(t *testing.T) {
	for _, rec := range recordings(t) {
		table := outbox.Table{Schema: "public", Name: "outbox"}
		whole, walked := New(table, defaultColumns(), 100), New(table, defaultColumns(), 100)
		messages(rec.stream, func(msg []byte) {
			compareLarge(t, whole, walked, msg)
		})
	}
}

// compareLarge decodes the message in both ways and says where the results differ. Only a Message,
// which DecodeLarge does not look into, may be an error for Decode and none for DecodeLarge; and only
// what is above the row limit is compared where it is a row.
func compareLarge(t *testing.T, whole, walked *Decoder, msg []byte) {
	t.Helper()
	r := bytes.NewReader(append(spare(msg), "next"...))
	gotKind, gotErr := walked.DecodeLarge(r, len(msg))
	if rest, _ := io.ReadAll(r); string(rest) != "next" {
		t.Fatalf("%q: %d bytes are left", msg, len(rest))
	}
	wantKind, wantErr := whole.Decode(spare(msg))
	if gotKind != wantKind {
		t.Fatalf("%q: %s, want %s", msg, gotKind, wantKind)
	}
	if wantKind == KindMessage {
		return
	}
	if wantKind == KindInsert && len(msg) <= whole.rowLimit {
		return
	}
	if got, want := describe(walked, gotKind, gotErr), describe(whole, wantKind, wantErr); got != want {
		t.Fatalf("%q:\n got %s\nwant %s", msg, got, want)
	}
}
