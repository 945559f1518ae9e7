// Package checkpoint knows how far the relay has got. The tracker says which position may be confirmed
// to PostgreSQL; the settler marks or deletes in the table the rows that Kafka has.
//
// The tracker is pure: no I/O, no clock, no goroutine, no logger. Nothing outside this package compares
// positions, and nothing anywhere adds to one.
package checkpoint

import (
	"fmt"
	"math/bits"
	"sync"
	"sync/atomic"

	"github.com/jackc/pglogrepl"

	"walrelay/outbox"
)

// Row is what a row is settled by: the id alone could belong to another event by now (H11).
type Row struct {
	RowID   int64
	EventID outbox.EventID
}

// MaxRows is the largest capacity of a tracker. It keeps the count of rows in flight and their bytes in
// one word, see inFlight.
const MaxRows = 1 << 22

// Options are what a tracker starts from.
type Options struct {
	Rows    int           // capacity: rows received and not settled; 1 to MaxRows, rounded up to a power of two
	Start   pglogrepl.LSN // what the slot has confirmed; Confirmable is never below it
	Settles bool          // false (RELAY_AFTER_PUBLISH=keep): a resolved row counts as settled at once
	Carried Carried       // of the session before; the zero value where there was none
}

// Tracker is the watermark of one session. What must be true:
//
//	Confirmable ≤ end of the last transaction such that it and all before it have been received whole, every
//	row of them is resolved (Kafka has it) and every row of them is settled in the table.
//
// A row's life is received → (held →) in flight → resolved → settled. It has a slot in one ring from its
// Add until it and every row before it are settled, so that rows that the table cannot be told about
// (H17: a LOCK TABLE) fill the ring and stop the source instead of growing the process.
//
// Three parties use a tracker at the same time. The source's goroutine alone calls Open, Add, AddResolved,
// AddHeld, ReleaseHeld, Hold, Skip, Close, Idle and Room. Any goroutine may call Done, which is a few
// atomics. One settler calls Pending, PendingAfter and Settled. The rest may be called from anywhere.
// Nobody resets a tracker: a new session makes a new one.
type Tracker struct {
	slots   []slot
	mask    uint64
	settles bool
	base    Carried
	waiters atomic.Pointer[[]*Waiter]

	_      [64]byte // what the source writes for each row stays off the cache line that Done reads
	source struct {
		next     uint64 // token of the next row
		first    uint64 // token of the first row of the open transaction
		ordinal  uint32 // wire inserts of the open transaction so far
		open     bool
		holding  bool
		heldFrom uint64
		lastEnd  pglogrepl.LSN
	}
	tail     atomic.Uint64 // source.next, published: slots below it may be read
	ordinals atomic.Uint32 // source.ordinal, published after tail
	held     atomic.Int64

	_        [64]byte      // Done and the source both write it
	inFlight atomic.Uint64 // rows << 40 | bytes, of rows that are not acknowledged

	_       [64]byte
	head    atomic.Uint64 // mu.settled, published: slots below it are free
	settled atomic.Uint64 // rows settled, in any order

	// The prefixes are moved by whoever reads them, never by Done.
	mu struct {
		sync.Mutex
		resolved uint64 // first token that is not resolved
		settled  uint64 // first token that is not settled; ≤ resolved
		first    uint64 // first token of the first transaction that is not wholly resolved

		holding     bool
		txns        queue
		open        transaction // received in part; end is not known yet
		resolvedLSN pglogrepl.LSN
		settledLSN  pglogrepl.LSN
		last        struct { // last transaction with rows of the resolved prefix
			end pglogrepl.LSN
			xid uint32
		}
	}
}

// slot is one row. state is written last, so that a reader that finds its token there finds its row too.
type slot struct {
	state   atomic.Uint64 // token << 2 | one of the states below
	size    atomic.Uint32 // bytes in flight
	ordinal uint32        // of the row among the wire inserts of its transaction
	row     Row
}

const (
	stateHeld = iota
	stateInFlight
	stateResolved
	stateSettled
	stateBits = 2
	stateMask = 1<<stateBits - 1
)

const (
	bytesBits = 40 // of inFlight; a terabyte, of which a window is a few megabytes
	oneRow    = 1 << bytesBits
	bytesMask = oneRow - 1
)

// NewTracker makes the tracker of one session.
func NewTracker(o Options) *Tracker {
	if o.Rows < 1 || o.Rows > MaxRows {
		panic(fmt.Sprintf("checkpoint: a tracker of %d rows; 1 to %d can be", o.Rows, MaxRows))
	}
	rows := 1 << bits.Len(uint(o.Rows-1))
	t := &Tracker{slots: make([]slot, rows), mask: uint64(rows - 1), settles: o.Settles, base: o.Carried}
	t.waiters.Store(new([]*Waiter))
	if o.Carried.Part.Rows == 0 {
		t.base.Part = Part{}
	}
	// Tokens start at 1: the zero value is nobody's.
	t.source.next, t.mu.resolved, t.mu.settled, t.mu.first = 1, 1, 1, 1
	t.tail.Store(1)
	t.head.Store(1)
	t.mu.txns = newQueue(rows)
	t.mu.resolvedLSN, t.mu.settledLSN = o.Start, o.Start
	return t
}

func pack(token, state uint64) uint64 { return token<<stateBits | state }

func (t *Tracker) slot(token uint64) *slot { return &t.slots[token&t.mask] }

// Stats is what metrics show.
type Stats struct {
	ResolvedLSN      pglogrepl.LSN
	SettledLSN       pglogrepl.LSN // Confirmable
	InFlightRows     int           // handed over and not acknowledged
	InFlightBytes    int64
	HeldRows         int
	Unsettled        int // resolved and not settled in the table
	OpenTransactions int // received, in whole or in part, and not settled
}

// Stats may be called at any time; under load its counts are of slightly different moments.
func (t *Tracker) Stats() Stats {
	rows, size := t.flight()
	s := Stats{InFlightRows: rows, InFlightBytes: size, HeldRows: int(t.held.Load()), Unsettled: t.Unsettled()}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.advanceLocked()
	s.ResolvedLSN, s.SettledLSN = t.mu.resolvedLSN, t.mu.settledLSN
	s.OpenTransactions = t.mu.txns.len()
	if t.mu.open.received {
		s.OpenTransactions++
	}
	return s
}

// InFlight is the number of rows that are handed over and not acknowledged.
func (t *Tracker) InFlight() int {
	rows, _ := t.flight()
	return rows
}

// Unsettled is the number of rows that are resolved and not yet settled in the table.
func (t *Tracker) Unsettled() int {
	if !t.settles {
		return 0
	}
	settled, inFlight, held := t.settled.Load(), uint64(t.InFlight()), uint64(t.held.Load())
	// A row may be acknowledged and settled between two of these loads and be counted twice.
	return max(0, int(t.tail.Load()-1-settled-inFlight-held))
}

func (t *Tracker) flight() (rows int, size int64) {
	f := t.inFlight.Load()
	return int(f >> bytesBits), int64(f & bytesMask)
}
