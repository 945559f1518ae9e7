package router

import (
	"math/bits"
	"time"
	"unsafe"

	"walrelay/outbox"
)

// A record keeps its buffers when it is used again, but not the large ones: a pool of records would hold
// the largest event that each has ever carried.
const (
	smallestBuffer    = 512      // bytes
	largestKeptBuffer = 64 << 10 // bytes
	largestKeptList   = 128      // headers; 40 bytes each
	maxHeaders        = 1000     // of the writer's; more cost memory far above the row's own size
	maxTimeLength     = len("-292277022399-01-01T00:00:00.000000000Z")
	positionLength    = len("00000000/0000000000000000/00000000")
	eventIDLength     = len("00000000-0000-0000-0000-000000000000")
	fixedHeaders      = 6
)

// Header is one header of a record. A nil value is null, which is not the same as an empty one.
type Header struct {
	Key   string
	Value []byte
}

// Record is one Kafka record. It owns its bytes, header keys included: all but the topic lie in one buffer
// that the next Route into it, or Reset, writes over. Who keeps a key, a value or a header's key
// (although it is a string) for longer than that copies it. The zero Record is ready to use.
type Record struct {
	Topic   string
	Key     []byte // nil: no key
	Value   []byte // nil: tombstone
	Headers []Header

	buf []byte
}

// Reset empties the record, and gives up buffers that grew beyond 64 KiB. Call it when a record goes back
// to its pool, so that the pool's memory is bounded while the records wait there.
func (rec *Record) Reset() {
	buf, headers := rec.buf[:0], rec.Headers
	if cap(buf) > largestKeptBuffer {
		buf = nil
	}
	clear(headers) // they point into a buffer that may just have been given up
	headers = headers[:0]
	if cap(headers) > largestKeptList {
		headers = nil
	}
	*rec = Record{Headers: headers, buf: buf}
}

// reserve makes room for all that is copied from ev, so that no later append moves what slices already
// point to. A decoded JSON string is never longer than its text.
func (rec *Record) reserve(ev *outbox.Event) {
	need := len(ev.PartitionKey) + len(ev.Payload) + len(ev.Headers) +
		len(ev.AggregateType) + len(ev.AggregateID) + len(ev.EventType) +
		eventIDLength + maxTimeLength + positionLength
	if need <= cap(rec.buf) {
		return
	}
	size := need
	if need <= largestKeptBuffer {
		size = max(smallestBuffer, 1<<bits.Len(uint(need-1)))
	}
	rec.buf = make([]byte, 0, size)
}

// addFixedHeaders adds the headers that every event has, and the key, which is often one of them.
func (rec *Record) addFixedHeaders(ev *outbox.Event) {
	if rec.Headers == nil {
		rec.Headers = make([]Header, 0, 2*fixedHeaders)
	}
	start := len(rec.buf)
	rec.buf = ev.ID.Append(rec.buf)
	rec.add("event_id", rec.since(start))
	rec.addUnlessNull("event_type", rec.copied(ev.EventType))
	rec.addUnlessNull("aggregate_type", rec.copied(ev.AggregateType))
	rec.Key = rec.copied(ev.AggregateID)
	rec.addUnlessNull("aggregate_id", rec.Key)
	if ev.PartitionKey != nil {
		rec.Key = rec.copied(ev.PartitionKey)
	}
	if !ev.CreatedAt.IsZero() {
		start = len(rec.buf)
		rec.buf = ev.CreatedAt.UTC().AppendFormat(rec.buf, time.RFC3339Nano)
		rec.add("created_at", rec.since(start))
	}
	if ev.Position.Timeline != 0 {
		start = len(rec.buf)
		rec.buf = ev.Position.Append(rec.buf)
		rec.add("position", rec.since(start))
	}
}

func (rec *Record) add(key string, value []byte) {
	rec.Headers = append(rec.Headers, Header{key, value})
}

func (rec *Record) addUnlessNull(key string, value []byte) {
	if value != nil {
		rec.add(key, value)
	}
}

// copied is a copy of b in the record's buffer; nil stays nil and empty stays empty.
func (rec *Record) copied(b []byte) []byte {
	if b == nil {
		return nil
	}
	start := len(rec.buf)
	rec.buf = append(rec.buf, b...)
	return rec.since(start)
}

// since is what was appended to the buffer from start on. Its capacity ends with it, so that an append by
// its reader cannot touch what follows.
func (rec *Record) since(start int) []byte {
	return rec.buf[start:len(rec.buf):len(rec.buf)]
}

// sinceString is since as a string that shares the buffer: see Record for how long it lives.
func (rec *Record) sinceString(start int) string {
	b := rec.since(start)
	return unsafe.String(unsafe.SliceData(b), len(b))
}
