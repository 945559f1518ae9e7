package decoder

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"walrelay/outbox"
)

// The fuzz targets hold, for any input: no panic; the message's kind is what is returned; results only
// where there is no malformed stream; an event whose slices are of the message; and a decoder that
// reads the next sound message as if nothing had been.

// seedLimit leaves the recorded rows of 100 kB out of the corpus: mutating their filling finds nothing.
const seedLimit = 4 << 10

// fuzzDecoders are of the native table, of the table of the first recordings, and with a low row limit.
func fuzzDecoders() []*Decoder {
	types := outbox.Columns{ID: "id", EventID: "u", AggregateType: "t", AggregateID: "u", EventType: "t", Payload: "b",
		Headers: "j", Topic: "n", PartitionKey: "id", CreatedAt: "ts", PublishedAt: "ts"}
	return []*Decoder{
		newDecoder(0),
		New(outbox.Table{Schema: "public", Name: "types"}, types, 0),
		newDecoder(200),
	}
}

// prime makes the table known to d, as relation 1 with a column of every type that can serve.
func prime(tb testing.TB, d *Decoder) {
	tb.Helper()
	// An input may have made a domain of the type.
	if _, err := d.Decode(encodeType(20000, "public", "mood")); err != nil {
		tb.Fatal(err)
	}
	var columns []column
	for r, oid := range [roleCount]uint32{20, 2950, 25, 2950, 20000, 17, 3802, 1043, 20, 1184, 1114} {
		columns = append(columns, column{d.columns[r], oid})
	}
	if d.table.Name == "types" { // columns of several roles come once
		columns = []column{{"id", 23}, {"t", 25}, {"j", 3802}, {"b", 17}, {"u", 2950}, {"ts", 1184}, {"n", 25}, {"big", 25}}
	}
	if _, err := d.Decode(encodeRelation(1, d.table.Schema, d.table.Name, columns)); err != nil {
		tb.Fatal(err)
	}
}

// asRelation1 is the recorded message with the relation that prime describes.
func asRelation1(msg []byte) []byte {
	msg = spare(msg)
	if len(msg) >= 5 && msg[0] == 'I' {
		binary.BigEndian.PutUint32(msg[1:], 1)
	}
	return msg
}

func fuzzKind(f *testing.F, kind Kind) {
	for _, msg := range examples() {
		if msg[0] == byte(kind) {
			f.Add(msg)
		}
	}
	for _, rec := range recordings(f) {
		messages(rec.stream, func(msg []byte) {
			if msg[0] == byte(kind) && len(msg) <= seedLimit {
				f.Add(asRelation1(msg))
			}
		})
	}
	f.Fuzz(func(t *testing.T, msg []byte) {
		for _, d := range fuzzDecoders() {
			prime(t, d)
			msg := spare(msg)
			if len(msg) == 0 {
				msg = []byte{0}
			}
			msg[0] = byte(kind)
			checkDecode(t, d, msg)
			prime(t, d)
			checkSound(t, d)
		}
	})
}

// checkDecode decodes a message of any content and looks at all results.
func checkDecode(t *testing.T, d *Decoder, msg []byte) {
	t.Helper()
	size := len(msg)
	got, err := d.Decode(msg)
	var row *RowError
	if size > 0 && got != Kind(msg[0]) && got != 0 || got == 0 && err == nil {
		t.Fatalf("%q: %s, %v", msg, got, err)
	}
	if err != nil && err.Error() == "" {
		t.Fatal("an error without words")
	}
	ev := d.Event()
	if sound := err == nil || errors.As(err, &row); ev != nil && (got != KindInsert || !sound) || row != nil && ev == nil {
		t.Fatalf("%q: %s, %v, event %v", msg, got, err, ev)
	}
	if d.Truncated() && (got != KindTruncate || err != nil) {
		t.Fatalf("%q: truncated, %v", msg, err)
	}
	if ev != nil {
		if ev.Size != size {
			t.Fatalf("size %d of %d bytes", ev.Size, size)
		}
		for _, b := range [][]byte{ev.AggregateType, ev.AggregateID, ev.EventType, ev.PartitionKey, ev.Topic, ev.Payload, ev.Headers} {
			if len(b) > size && len(b) > 36 || cap(b) > 36 && cap(b) != len(b) {
				t.Fatalf("a column of %d (%d) bytes in %d", len(b), cap(b), size)
			}
		}
		describeEvent(ev)
	}
	scribble(msg)
}

// checkSound says whether d still reads a row as it should.
func checkSound(t *testing.T, d *Decoder) {
	t.Helper()
	if d.table.Name == "types" {
		return
	}
	id := wire(exampleUUID16)
	row := []field{text("42"), id, text("order"), id, wire("created"), text(`\x00ff`), wire("\x01{}"), text("t"),
		wire("\x00\x00\x00\x00\x00\x00\x00\x07"), null(), null()}
	if _, err := d.Decode(encodeInsert(1, row)); err != nil {
		t.Fatal(err)
	}
	ev := d.Event()
	if ev == nil || ev.RowID != 42 || ev.ID.String() != exampleUUID || string(ev.AggregateID) != exampleUUID || string(ev.PartitionKey) != "7" ||
		!bytes.Equal(ev.Payload, []byte{0, 0xff}) || string(ev.Headers) != "{}" || ev.Published {
		t.Fatalf("a sound row reads as %v", ev)
	}
}

func FuzzBegin(f *testing.F)    { fuzzKind(f, KindBegin) }
func FuzzCommit(f *testing.F)   { fuzzKind(f, KindCommit) }
func FuzzRelation(f *testing.F) { fuzzKind(f, KindRelation) }
func FuzzInsert(f *testing.F)   { fuzzKind(f, KindInsert) }
func FuzzTruncate(f *testing.F) { fuzzKind(f, KindTruncate) }
func FuzzMessage(f *testing.F)  { fuzzKind(f, KindMessage) }
func FuzzOrigin(f *testing.F)   { fuzzKind(f, KindOrigin) }
func FuzzType(f *testing.F)     { fuzzKind(f, KindType) }

// FuzzStream decodes whole streams of records, so that a relation of one message meets the row of
// another.
func FuzzStream(f *testing.F) {
	for _, rec := range recordings(f) {
		if len(rec.stream) <= seedLimit {
			f.Add(rec.stream)
		}
	}
	f.Fuzz(func(t *testing.T, stream []byte) {
		for _, d := range fuzzDecoders() {
			messages(spare(stream), func(msg []byte) { checkDecode(t, d, msg) })
			prime(t, d)
			checkSound(t, d)
		}
	})
}

// FuzzDecodeLarge compares a message that is walked with the same message decoded whole.
func FuzzDecodeLarge(f *testing.F) {
	for _, msg := range examples() {
		f.Add(msg)
	}
	f.Add(largeRow(string(make([]byte, 2*keepLimit))))
	for _, rec := range recordings(f) {
		messages(rec.stream, func(msg []byte) {
			if len(msg) <= seedLimit {
				f.Add(asRelation1(msg))
			}
		})
	}
	f.Fuzz(func(t *testing.T, msg []byte) {
		if len(msg) == 0 {
			return
		}
		whole, walked := newDecoder(1), newDecoder(1)
		for _, d := range []*Decoder{whole, walked} {
			prime(t, d)
			if _, err := d.Decode(encodeRelation(2, "public", "other", nil)); err != nil {
				t.Fatal(err)
			}
		}
		compareLarge(t, whole, walked, msg)
		prime(t, walked)
		walked.rowLimit = 0
		checkSound(t, walked)
	})
}
