package polling

import (
	"errors"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"walrelay/internal/size"
	"walrelay/outbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Of what Kafka has, only the rows in front of the first that it does not have may be settled.
func TestPrefix(t *testing.T) {
	b := newBatch(5, 1, text{})
	for i := range 5 {
		b.add([][]byte{{byte('a' + i)}}, false)
		b.hand(i, &outbox.Event{RowID: int64(10 + i)})
		b.handed = i + 1
	}
	expect := func(want ...int64) {
		t.Helper()
		var got []int64
		for _, p := range b.prefix(nil) {
			got = append(got, p.Row.RowID)
		}
		if !slices.Equal(got, want) {
			t.Errorf("may be settled: %v, want %v", got, want)
		}
	}
	expect()
	b.Acked(1, nil)
	b.Acked(3, nil)
	expect()
	b.Acked(0, nil)
	expect(10, 11)
	b.Acked(2, errors.New("rejected"))
	b.Acked(4, nil)
	expect(10, 11)
	if rows, size := b.inFlight(); rows != 0 || size != 0 {
		t.Errorf("%d rows of %d bytes are in flight", rows, size)
	}
	if n := b.acknowledged(); n != 4 {
		t.Errorf("%d rows are acknowledged", n)
	}
	if f := b.failure.Load(); f == nil || (*f).Error() != "rejected" {
		t.Errorf("failure %v", f)
	}
}

// An answer for what was answered, or never handed over, ends the session.
func TestAnswerTwice(t *testing.T) {
	for name, twice := range map[string]bool{"twice": true, "never handed over": false} {
		b := newBatch(1, 1, text{})
		b.add([][]byte{nil}, false)
		if twice {
			b.hand(0, &outbox.Event{RowID: 1})
			b.Acked(0, nil)
		}
		b.Acked(0, nil)
		if b.failure.Load() == nil {
			t.Errorf("%s: no failure", name)
		}
	}
}

// What a batch holds is a copy, with NULL and the empty value told apart; its memory serves the next.
func TestBatchKeepsItsRows(t *testing.T) {
	rows := [][][]byte{{[]byte("one"), nil, {}}, {nil, []byte("two"), []byte("three")}}
	b := newBatch(2, 3, text{})
	for range 2 {
		scratch := make([]byte, 0, 16)
		for _, values := range rows {
			read := make([][]byte, len(values))
			scratch = scratch[:0]
			for i, v := range values {
				if v != nil {
					from := len(scratch)
					scratch = append(scratch, v...)
					read[i] = scratch[from:len(scratch):len(scratch)]
				}
			}
			b.add(read, false)
			clear(scratch)
		}
		for i, values := range rows {
			got := b.row(i)
			for k, want := range values {
				if string(got[k]) != string(want) || (got[k] == nil) != (want == nil) {
					t.Errorf("row %d, column %d: %q, want %q", i, k, got[k], want)
				}
			}
		}
		b = newBatch(2, 3, b.text)
	}
}

func TestConfigNamesEveryVariable(t *testing.T) {
	good := Config{Interval: time.Second, BatchRows: 100, BatchBytes: size.Bytes(1 << 20), Notify: Auto}
	if errs := good.Validate(); len(errs) > 0 {
		t.Errorf("a good one: %v", errs)
	}
	if errs := (Config{Interval: time.Hour, BatchRows: 0, BatchBytes: 1, Notify: "sometimes"}).Validate(); len(errs) != 4 {
		t.Errorf("%d problems, want 4: %v", len(errs), errs)
	}
}
