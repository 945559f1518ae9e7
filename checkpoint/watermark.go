package checkpoint

import (
	"fmt"

	"github.com/jackc/pglogrepl"
)

// Confirmable is the settled watermark, the only position that may be told to PostgreSQL as flushed: the end of
// the last transaction such that it and all before it are received, resolved and settled. It never falls and is
// always the end of a commit record, a keepalive's position, or Start.
func (t *Tracker) Confirmable() pglogrepl.LSN {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.advanceLocked()
	return t.mu.settledLSN
}

// advanceLocked moves the prefixes over what has happened since the last call: each row and each transaction is
// passed once per prefix.
func (t *Tracker) advanceLocked() {
	if t.mu.holding {
		return
	}
	tail := t.tail.Load()
	for t.mu.resolved < tail && t.slot(t.mu.resolved).state.Load()&stateMask >= stateResolved {
		t.mu.resolved++
	}
	if !t.settles {
		t.mu.settled = t.mu.resolved
	}
	for t.mu.settled < t.mu.resolved && t.slot(t.mu.settled).state.Load()&stateMask == stateSettled {
		t.mu.settled++
	}
	q := &t.mu.txns
	for ; q.resolved < q.len(); q.resolved++ {
		txn := q.at(q.resolved)
		if txn.last > t.mu.resolved {
			break
		}
		if txn.last > t.mu.first {
			t.mu.last.end, t.mu.last.xid = txn.end, txn.xid
		}
		t.mu.first = txn.last
	}
	if q.resolved > 0 {
		t.mu.resolvedLSN = max(t.mu.resolvedLSN, q.at(q.resolved-1).upTo)
	}
	for q.resolved > 0 && q.at(0).last <= t.mu.settled {
		t.mu.settledLSN = max(t.mu.settledLSN, q.at(0).upTo)
		q.pop()
	}
	t.head.Store(t.mu.settled)
}

// Pending is a row that Kafka has and that is to be settled in the table.
type Pending struct {
	Token uint64
	Row   Row
	XID   uint32 // of its transaction, from Begin; tells a row that is not visible yet from one that is gone (H1)
}

// Pending appends up to limit rows of the resolved prefix that are not settled, oldest first.
func (t *Tracker) Pending(dst []Pending, limit int) []Pending { return t.PendingAfter(dst, 0, limit) }

// PendingAfter is Pending for rows behind the token after. A settler that walks on with it reaches the rows
// behind a batch of locked ones.
func (t *Tracker) PendingAfter(dst []Pending, after uint64, limit int) []Pending {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.advanceLocked()
	q := &t.mu.txns
	i := 0
	for token := max(t.mu.settled, after+1); token < t.mu.resolved && limit > 0; token++ {
		s := t.slot(token)
		if s.state.Load()&stateMask != stateResolved {
			continue
		}
		for i < q.len() && q.at(i).last <= token {
			i++
		}
		txn := &t.mu.open
		if i < q.len() {
			txn = q.at(i)
		}
		dst = append(dst, Pending{Token: token, Row: s.row, XID: txn.xid})
		limit--
	}
	return dst
}

// Settled says that the row is settled in the table, and that this is committed there. Rows may be settled in any
// order; the watermark moves over those without a gap.
func (t *Tracker) Settled(token uint64) error {
	resolved := pack(token, stateResolved)
	if !t.settles || !t.slot(token).state.CompareAndSwap(resolved, pack(token, stateSettled)) {
		return fmt.Errorf("settle row %d: %w", token, ErrToken)
	}
	t.settled.Add(1)
	t.nudge()
	return nil
}
