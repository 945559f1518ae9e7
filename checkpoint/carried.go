package checkpoint

import (
	"math"

	"github.com/jackc/pglogrepl"
)

// Carried is what a rebuilt session starts from, so that it does not hand over again what Kafka has (H4, H15).
// Every claim in it is about rows that are resolved; it says nothing about what PostgreSQL was told.
type Carried struct {
	// The last transaction with rows of the resolved prefix: everything up to End is resolved. (Not the end of
	// an empty one: it must come again when the server resumes below it.)
	End pglogrepl.LSN
	XID uint32

	// Everything up to here is settled in the table too; ≤ End, so that it speaks of the same history.
	Settled pglogrepl.LSN

	// The transaction after End, of which a part is resolved.
	Part Part

	// The first transaction that is not settled whole and of which a part is; the part that is settled. It may
	// end at or below End: of a transaction larger than the tracker all may be resolved and all but the last
	// rows be settled. Held whole when it comes again, it would never fit (H15).
	Unsettled Part
}

// Part is a transaction of which a prefix of the wire inserts is resolved; the zero value is none.
type Part struct {
	XID     uint32
	Final   pglogrepl.LSN // Begin's final LSN
	Rows    uint32        // length of the prefix, inserts that are not ours included
	Settled uint32        // length of the prefix that is settled in the table too; ≤ Rows; of Carried.Part only
}

// Ahead says that the server will resume below the carried position, so that its own transaction must come again
// before anything may be confirmed.
func (c Carried) Ahead(confirmed pglogrepl.LSN) bool { return c.End > confirmed }

// Is says that the transaction is the carried position's own.
func (c Carried) Is(xid uint32, end pglogrepl.LSN) bool { return c.XID == xid && c.End == end }

// Passed says that the transaction lies wholly behind the carried position. One that does while Is has not yet
// been true proves another history.
func (c Carried) Passed(final pglogrepl.LSN) bool { return final >= c.End }

// SettledBefore says that the transaction, known from its Begin, is settled whole: its rows are skipped, they
// need no slot. Commit records do not overlap, so one that starts below the watermark ends at or below it.
func (c Carried) SettledBefore(final pglogrepl.LSN) bool { return final < c.Settled }

// SettledRows is how many of the first wire inserts of a transaction, known from its Begin, are settled in the table:
// they are skipped. The others that are resolved fit a tracker of the same capacity.
func (c Carried) SettledRows(xid uint32, final pglogrepl.LSN) uint32 {
	switch {
	case c.SettledBefore(final):
		return math.MaxUint32
	case c.Unsettled.Matches(xid, final):
		return c.Unsettled.Rows
	case c.Part.Matches(xid, final):
		return c.Part.Settled
	}
	return 0
}

// Resettled is the same position on a server that may have lost what was settled: all that is resolved is to be
// settled again. What comes again may then be more than a tracker of the same capacity holds.
func (c Carried) Resettled() Carried {
	c.Settled, c.Unsettled, c.Part.Settled = 0, Part{}, 0
	return c
}

// Matches says that the transaction, known from its Begin, is the one that is resolved in part.
func (p Part) Matches(xid uint32, final pglogrepl.LSN) bool {
	return p.Rows > 0 && p.XID == xid && p.Final == final
}

// Carried is what the next session starts from. While nothing newer than what this one started from is resolved
// it is the same.
func (t *Tracker) Carried() Carried {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.holding {
		return t.base
	}
	ordinals := t.ordinals.Load() // before tail is read: every row that it counts is then seen
	t.advanceLocked()
	return t.base.merge(Carried{
		End:       t.mu.last.end,
		XID:       t.mu.last.xid,
		Settled:   t.mu.settledLSN,
		Part:      t.partLocked(ordinals),
		Unsettled: t.unsettledLocked(ordinals),
	})
}

// partLocked looks at the first transaction that is not wholly resolved, be it closed or open.
func (t *Tracker) partLocked(ordinals uint32) Part {
	q := &t.mu.txns
	p := t.prefixLocked(q.resolved, t.mu.resolved, ordinals)
	switch {
	case p.Rows == 0:
	case t.mu.settled == t.mu.resolved:
		p.Settled = p.Rows
	case t.mu.settled >= t.mu.first:
		p.Settled = t.slot(t.mu.settled).ordinal
	}
	return p
}

// unsettledLocked looks at the first transaction that is not wholly settled.
func (t *Tracker) unsettledLocked(ordinals uint32) Part {
	return t.prefixLocked(0, t.mu.settled, ordinals)
}

// prefixLocked is the part before token, the first of its kind, of the transaction at i of the queue, which is the
// open one where the queue ends before.
func (t *Tracker) prefixLocked(i int, token uint64, ordinals uint32) Part {
	txn := &t.mu.open
	if i < t.mu.txns.len() {
		txn = t.mu.txns.at(i)
	}
	if token < t.tail.Load() {
		ordinals = t.slot(token).ordinal
	}
	if !txn.received || ordinals == 0 {
		return Part{}
	}
	return Part{XID: txn.xid, Final: txn.final, Rows: ordinals}
}

// merge keeps of two true statements what reaches further.
func (c Carried) merge(now Carried) Carried {
	m := Carried{End: c.End, XID: c.XID, Part: c.Part.merge(now.Part), Unsettled: c.Unsettled.merge(now.Unsettled)}
	if now.End > c.End {
		m.End, m.XID = now.End, now.XID
	}
	m.Settled = min(max(c.Settled, now.Settled), m.End)
	if m.Part.Final < m.End {
		m.Part = Part{} // it is part of no longer: its commit record lies below End
	}
	return m
}

func (p Part) merge(now Part) Part {
	switch {
	case now.Final > p.Final:
		return now
	case now.Final < p.Final:
		return p
	case now.XID != p.XID: // of another history than the one that p was carried from
		return now
	}
	p.Rows, p.Settled = max(p.Rows, now.Rows), max(p.Settled, now.Settled)
	return p
}
