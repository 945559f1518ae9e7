package sink

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"walrelay/router"
)

// An Entry is one record on its way to Kafka. Its owner is, in this order: who acquired it; kgo,
// from a Produce that returned nil until the record's promise has been called; the pool. Everything
// that it needs is allocated once and used again, the promise function included.
type Entry struct {
	Record router.Record // route into it; it is reused, so nothing in it outlives the entry

	p       *Producer
	kafka   kgo.Record
	promise func(*kgo.Record, error)

	to     Acker
	token  uint64
	topic  *topic // of the last record, which is mostly the next one's too
	handed time.Time
	slot   uint8 // of the producer's ages, that the record is counted in

	next    *Entry // in the pool
	largest int    // bytes that its buffers may have grown to
}

// finish is the promise. It runs on kgo's one promise goroutine, which every record waits behind:
// atomics and the few short locks of client_golang, and nothing that waits.
//
// The record counts as outstanding until the Acker has been told, so that nobody who waits for
// Outstanding to be 0 misses an acknowledgement.
func (e *Entry) finish(_ *kgo.Record, err error) {
	p := e.p
	if err == nil {
		p.metrics.acked.Add(1)
		p.metrics.ackSeconds.Observe(time.Since(e.handed).Seconds())
		p.topics.accepted(e.topic)
	} else {
		p.failed(e.topic, err)
	}
	to, token, slot := e.to, e.token, e.slot
	p.pool.put(e)
	to.Acked(token, err)
	p.ages.remove(slot)
	p.returned()
}

// pool keeps idle entries. It is ours and not a sync.Pool because records are acquired on one
// goroutine and come back on another, where a sync.Pool mostly misses, and because what it keeps is
// bounded in bytes: entries whose buffers have grown to 900 kB must not be kept by the thousand.
//
// Promises push onto free; Acquire pops from taken, and takes over everything that is free once
// taken is empty. So neither waits for the other, and since nothing is ever popped from free by
// itself, an entry that is pushed again in between does no harm.
type pool struct {
	free atomic.Pointer[Entry]
	idle atomic.Int64 // bytes that the idle entries may hold

	mu struct {
		sync.Mutex
		taken *Entry
	}
}

const (
	keptBytes    = 64 << 10 // what router.Record.Reset keeps of a record's buffer
	maxIdleBytes = 8 << 20  // the relay's window in rows of 300 bytes: a drain allocates nothing
	entryBytes   = 1 << 10  // an entry without its record: the structs and room for some headers
)

func (pl *pool) get() *Entry {
	pl.mu.Lock()
	e := pl.mu.taken
	if e == nil {
		e = pl.free.Swap(nil)
	}
	if e == nil {
		pl.mu.Unlock()
		return nil
	}
	pl.mu.taken, e.next = e.next, nil
	pl.mu.Unlock()
	pl.idle.Add(-int64(entryBytes + e.largest))
	return e
}

func (pl *pool) put(e *Entry) {
	e.Record.Reset() // gives up what is larger than its own bound
	e.largest = min(e.largest, 2*keptBytes)
	clear(e.kafka.Headers)
	e.kafka = kgo.Record{Headers: e.kafka.Headers[:0]}
	e.to = nil
	held := int64(entryBytes + e.largest)
	if pl.idle.Add(held) > maxIdleBytes {
		pl.idle.Add(-held)
		return // to the garbage collector
	}
	for {
		head := pl.free.Load()
		e.next = head
		if pl.free.CompareAndSwap(head, e) {
			return
		}
	}
}

// fill makes the kgo record of the entry's record. No byte is copied.
func (e *Entry) fill(size int, now time.Time) {
	e.largest = max(e.largest, 2*size) // buffers grow by doubling
	headers := e.kafka.Headers[:0]
	for i := range e.Record.Headers {
		headers = append(headers, kgo.RecordHeader(e.Record.Headers[i]))
	}
	// The rest of the kgo record is zero: put has seen to it.
	r := &e.kafka
	r.Topic, r.Key, r.Value, r.Headers = e.Record.Topic, e.Record.Key, e.Record.Value, headers
	// The timestamp is the time of publishing (H16): a created_at older than the topic's retention
	// would be acknowledged and deleted before anyone reads it.
	r.Timestamp = now
	e.handed = now
}
