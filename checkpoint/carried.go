package checkpoint

import "github.com/jackc/pglogrepl"

// Carried is what a rebuilt session starts from, so that it does not hand over again what Kafka has (H4, H15).
// Every claim in it is about rows that are resolved; it says nothing about what PostgreSQL was told.
type Carried struct {
	// The last transaction with rows of the resolved prefix: everything up to End is resolved. (Not the end of
	// an empty one: it must come again when the server resumes below it.)
	End pglogrepl.LSN
	XID uint32

	// Everything up to here is settled in the table too; ≤ End, so that it speaks of the same history.
	Settled pglogrepl.LSN

	// The transaction after it, of which a part is resolved.
	Part Part
}

// Part is a transaction of which a prefix of the wire inserts is resolved; the zero value is none.
type Part struct {
	XID     uint32
	Final   pglogrepl.LSN // Begin's final LSN
	Rows    uint32        // length of the prefix, inserts that are not ours included
	Settled uint32        // length of the prefix that is settled in the table too; ≤ Rows
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
	now := Carried{End: t.mu.last.end, XID: t.mu.last.xid, Settled: t.mu.settledLSN, Part: t.partLocked(ordinals)}
	return t.base.merge(now)
}

// partLocked looks at the first transaction that is not wholly resolved, be it closed or open.
func (t *Tracker) partLocked(ordinals uint32) Part {
	txn, q := &t.mu.open, &t.mu.txns
	if q.resolved < q.len() {
		txn = q.at(q.resolved)
	}
	if !txn.received {
		return Part{}
	}
	p := Part{XID: txn.xid, Final: txn.final, Rows: ordinals}
	if t.mu.resolved < t.tail.Load() {
		p.Rows = t.slot(t.mu.resolved).ordinal
	}
	switch {
	case p.Rows == 0:
		return Part{}
	case t.mu.settled == t.mu.resolved:
		p.Settled = p.Rows
	case t.mu.settled >= t.mu.first:
		p.Settled = t.slot(t.mu.settled).ordinal
	}
	return p
}

// merge keeps of two true statements what reaches further.
func (c Carried) merge(now Carried) Carried {
	m := c
	if now.End > c.End {
		m.End, m.XID = now.End, now.XID
	}
	m.Settled = min(max(c.Settled, now.Settled), m.End)
	switch {
	case now.Part.Final > c.Part.Final:
		m.Part = now.Part
	case now.Part.Final < c.Part.Final:
	case now.Part.XID != c.Part.XID: // of another history than the one that c was carried from
		m.Part = now.Part
	default:
		m.Part.Rows = max(c.Part.Rows, now.Part.Rows)
		m.Part.Settled = max(c.Part.Settled, now.Part.Settled)
	}
	if m.Part.Final < m.End {
		m.Part = Part{} // it is part of no longer: its commit record lies below End
	}
	return m
}
