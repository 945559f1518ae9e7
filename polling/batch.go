package polling

import (
	"fmt"
	"sync/atomic"

	"walrelay/checkpoint"
	"walrelay/outbox"
)

// batch is what one poll has read. What must be true: a row that is settled is in the prefix of rows
// that Kafka has, so that of one key nothing is settled in front of a row that failed.
//
// The session's goroutine fills it and hands it over; Acked comes from Kafka's. A row's token is its
// place in the batch.
type batch struct {
	rows    []row
	columns int
	text    text
	values  [][]byte      // of the row at hand
	answer  chan struct{} // nudged by each answer of Kafka's

	handed  int // rows that were handed over; of the session's goroutine
	flight  atomic.Int64
	bytes   atomic.Int64
	acks    atomic.Int64
	settled atomic.Int64
	failure atomic.Pointer[error]
}

// text is what was read, kept for the next batch: there is one at a time.
type text struct {
	arena []byte // the values of all rows, one behind the other
	ends  []int  // of each value in the arena; -1: NULL
}

type row struct {
	id    checkpoint.Row // known once it was handed over
	from  int            // in the arena
	size  int64
	large bool // payload and headers were left behind
	state atomic.Uint32
}

const (
	rowRead = iota
	rowInFlight
	rowAcked
)

// newBatch has room for so many rows.
func newBatch(rows, columns int, t text) *batch {
	return &batch{
		rows: make([]row, 0, rows), columns: columns, values: make([][]byte, columns), answer: make(chan struct{}, 1),
		text: text{arena: t.arena[:0], ends: t.ends[:0]},
	}
}

// add copies one row of the result.
func (b *batch) add(values [][]byte, large bool) {
	t := &b.text
	from := len(t.arena)
	for _, v := range values {
		t.arena = append(t.arena, v...)
		end := len(t.arena)
		if v == nil {
			end = -1
		}
		t.ends = append(t.ends, end)
	}
	b.rows = append(b.rows, row{from: from, size: int64(len(t.arena) - from), large: large})
}

// row is the values of row i, until the next call.
func (b *batch) row(i int) [][]byte {
	from := b.rows[i].from
	for k, end := range b.text.ends[i*b.columns : (i+1)*b.columns] {
		if end < 0 {
			b.values[k] = nil
			continue
		}
		b.values[k] = b.text.arena[from:end:end]
		from = end
	}
	return b.values
}

// hand notes that row i goes to Kafka. It comes first: Kafka may answer before Publish returns.
func (b *batch) hand(i int, ev *outbox.Event) {
	r := &b.rows[i]
	r.id = checkpoint.Row{RowID: ev.RowID, EventID: ev.ID}
	b.flight.Add(1)
	b.bytes.Add(r.size)
	r.state.Store(rowInFlight)
}

// back takes it back: it was not handed over after all.
func (b *batch) back(i int) {
	r := &b.rows[i]
	r.state.Store(rowRead)
	b.flight.Add(-1)
	b.bytes.Add(-r.size)
}

// Acked is called on Kafka's promise goroutine.
func (b *batch) Acked(token uint64, err error) {
	r := &b.rows[token]
	if err == nil && !r.state.CompareAndSwap(rowInFlight, rowAcked) {
		err = fmt.Errorf("row %d of the batch was acknowledged twice, or was never handed over", token)
	}
	if err != nil {
		b.failure.CompareAndSwap(nil, &err)
	} else {
		b.acks.Add(1)
	}
	b.bytes.Add(-r.size)
	b.flight.Add(-1) // last: whoever sees no row in flight may settle and forget the batch
	select {
	case b.answer <- struct{}{}:
	default:
	}
}

func (b *batch) inFlight() (rows int, bytes int64) { return int(b.flight.Load()), b.bytes.Load() }

// acknowledged is the number of rows that Kafka has and that are not settled.
func (b *batch) acknowledged() int { return int(b.acks.Load() - b.settled.Load()) }

// prefix appends the rows up to the first that Kafka does not have.
func (b *batch) prefix(dst []checkpoint.Pending) []checkpoint.Pending {
	for i := range b.handed {
		r := &b.rows[i]
		if r.state.Load() != rowAcked {
			break
		}
		dst = append(dst, checkpoint.Pending{Row: r.id})
	}
	return dst
}
