package checkpoint

import (
	"fmt"

	"github.com/jackc/pglogrepl"
)

// The methods of this file belong to the source's goroutine.

// Open is Begin: rows and skips up to Close belong to this transaction. An error is a broken stream.
func (t *Tracker) Open(xid uint32, final pglogrepl.LSN) error {
	if t.source.open {
		return fmt.Errorf("begin of transaction %d at %s inside a transaction", xid, final)
	}
	t.source.open, t.source.first = true, t.source.next
	t.mu.Lock()
	defer t.mu.Unlock()
	t.source.ordinal = 0
	t.ordinals.Store(0)
	t.mu.open = transaction{xid: xid, final: final, received: true}
	return nil
}

// InTransaction says whether a transaction is open. An insert outside of one is a broken stream, which the
// caller sees here before it calls Add.
func (t *Tracker) InTransaction() bool { return t.source.open }

// Ordinal is the number of wire inserts of the open transaction so far, which is the ordinal of the next.
func (t *Tracker) Ordinal() uint32 { return t.source.ordinal }

// Room is what the caller asks before Add, AddResolved and AddHeld: slots that are free (at least as many; the
// number is exact when it is 0) and the bytes that are in flight.
func (t *Tracker) Room() (rows int, bytes int64) {
	_, bytes = t.flight()
	return t.free(), bytes
}

// Capacity is the number of slots.
func (t *Tracker) Capacity() int { return len(t.slots) }

func (t *Tracker) free() int {
	free := len(t.slots) - int(t.source.next-t.head.Load())
	if free > 0 {
		return free
	}
	t.mu.Lock()
	t.advanceLocked()
	t.mu.Unlock()
	return len(t.slots) - int(t.source.next-t.head.Load())
}

// Add is one wire insert that is handed over to Kafka. The token stands for it in Done and Settled and is never
// used again by this tracker. Add panics without a transaction or without room.
func (t *Tracker) Add(row Row, size int) (token uint64) {
	t.inFlight.Add(oneRow | uint64(uint32(size)))
	return t.put(row, uint32(size), stateInFlight)
}

// AddResolved is a wire insert that Kafka has from a session before: it needs no ack but is settled like an
// acknowledged one, since nobody knows whether that session came to it.
func (t *Tracker) AddResolved(row Row) (token uint64) {
	token = t.put(row, 0, stateResolved)
	t.nudge()
	return token
}

// AddHeld is AddResolved under the reservation that this server has the history that the carried position
// belongs to (H4). Until ReleaseHeld the row is not resolved, and nothing is confirmable.
func (t *Tracker) AddHeld(row Row) (token uint64) {
	t.Hold()
	t.held.Add(1)
	return t.put(row, 0, stateHeld)
}

// Hold keeps every watermark where it is until ReleaseHeld: the carried position has not been found yet.
func (t *Tracker) Hold() {
	if t.source.holding {
		return
	}
	t.source.holding, t.source.heldFrom = true, t.source.next
	t.mu.Lock()
	t.mu.holding = true
	t.mu.Unlock()
}

// ReleaseHeld resolves the held rows, oldest first: the carried position has been found.
func (t *Tracker) ReleaseHeld() {
	if !t.source.holding {
		return
	}
	t.source.holding = false
	t.mu.Lock()
	for token := t.source.heldFrom; token < t.source.next; token++ {
		if s := t.slot(token); s.state.Load() == pack(token, stateHeld) {
			s.state.Store(pack(token, stateResolved))
		}
	}
	t.held.Store(0)
	t.mu.holding = false
	t.mu.Unlock()
	t.nudge()
}

// put writes the slot first and publishes it last, without the mutex.
func (t *Tracker) put(row Row, size uint32, state uint64) uint64 {
	if !t.source.open {
		panic("checkpoint: a row outside a transaction")
	}
	if t.free() == 0 {
		panic("checkpoint: a row without room")
	}
	token := t.source.next
	s := t.slot(token)
	s.row, s.ordinal = row, t.source.ordinal
	s.size.Store(size)
	s.state.Store(pack(token, state))
	t.source.next++
	t.source.ordinal++
	t.tail.Store(t.source.next)
	t.ordinals.Store(t.source.ordinal)
	return token
}

// Skip counts wire inserts that are nothing to publish and nothing to settle: rows of other tables, rows that
// their writer marked, rows that are settled already. They move the ordinal and take no slot.
//
// An ordinal is 32 bits, as on the wire to consumers. In a transaction of more inserts it wraps and Carried
// names a shorter prefix than there is: more is repeated, nothing is lost.
func (t *Tracker) Skip(n int) {
	if !t.source.open {
		panic("checkpoint: a skipped row outside a transaction")
	}
	t.source.ordinal += uint32(n)
	t.ordinals.Store(t.source.ordinal)
}

// Close is Commit. end is the LSN behind the commit record. A transaction without rows of ours joins the one
// before it, so that 10,000 empty ones a second behind one stuck ack (PostgreSQL 14) take no memory. An error
// is a broken stream: ends never fall.
func (t *Tracker) Close(end pglogrepl.LSN) error {
	if !t.source.open {
		return fmt.Errorf("commit that ends at %s outside a transaction", end)
	}
	if end < t.source.lastEnd {
		return fmt.Errorf("commit that ends at %s after one that ended at %s", end, t.source.lastEnd)
	}
	t.source.open, t.source.lastEnd = false, end
	empty := t.source.next == t.source.first

	t.mu.Lock()
	defer t.mu.Unlock()
	txn := t.mu.open
	t.mu.open = transaction{}
	txn.end, txn.upTo, txn.last = end, end, t.source.next
	q := &t.mu.txns
	switch {
	case empty && q.len() > 0:
		q.tail().upTo = end
		return nil
	case q.full():
		// Every transaction in the queue has a slot that is not free, or would leave with this call: a slot is
		// freed by the same advance that takes its transaction out.
		t.advanceLocked()
	}
	q.push(txn)
	if empty {
		t.advanceLocked()
	}
	return nil
}

// Idle is a keepalive: the server has nothing for us up to end. It counts as an empty transaction where nothing
// is open, held, in flight or unsettled, and is ignored otherwise and where it is old.
func (t *Tracker) Idle(end pglogrepl.LSN) {
	if t.source.open || t.source.holding || end < t.source.lastEnd {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.advanceLocked()
	if t.mu.txns.len() > 0 || end <= t.mu.settledLSN {
		return
	}
	t.source.lastEnd = end
	t.mu.resolvedLSN, t.mu.settledLSN = end, end
}
