package replication

import (
	"fmt"

	"github.com/jackc/pglogrepl"

	"walrelay/checkpoint"
)

// history names the sequence of transactions that a position belongs to.
type history struct {
	systemID string
	timeline int32
	slot     string
}

// resume is what a rebuilt session knows of the stream that it is about to read again: the position
// up to which everything is acknowledged although the server may not know, or may have forgotten.
//
// A server that was restored from an image has the same system id and timeline and other
// transactions at the same positions (H4). So while whole transactions are skipped, nothing is
// confirmed and nothing is settled until the very transaction that the position ends with has come.
type resume struct {
	carried checkpoint.Carried
	whole   bool // the slot is behind carried.End: transactions up to it come again

	inside  bool   // the open transaction lies before carried.End
	part    bool   // it is the one of which a part is acknowledged
	settled uint32 // its first wire inserts that are settled
	seen    uint32 // its wire inserts so far
}

func newResume(c checkpoint.Carried, confirmed pglogrepl.LSN) resume {
	return resume{carried: c, whole: c.Ahead(confirmed)}
}

// fate is what becomes of one wire insert.
type fate uint8

const (
	publish fate = iota
	skip         // acknowledged and settled
	settle       // acknowledged earlier: only to be settled
	hold         // acknowledged, if the position turns out to be this server's; not settled until then
)

// begin takes the Begin of a transaction.
func (r *resume) begin(xid uint32, final pglogrepl.LSN) error {
	r.inside, r.part, r.seen = false, false, 0
	r.settled = r.carried.SettledRows(xid, final)
	if r.whole {
		if r.carried.Passed(final) {
			return errUnmatched
		}
		r.inside = true
		return nil
	}
	r.part = r.carried.Part.Matches(xid, final)
	return nil
}

// row takes the next wire insert of the open transaction, of whatever table.
func (r *resume) row() fate {
	n := r.seen
	r.seen++
	switch {
	case (r.inside || r.part) && n < r.settled:
		return skip
	case r.inside:
		return hold
	case r.part && n < r.carried.Part.Rows:
		return settle
	}
	return publish
}

// commit takes the end of the open transaction. found is true once: it is the transaction that the
// position ends with.
func (r *resume) commit(xid uint32, end pglogrepl.LSN) (found bool, err error) {
	switch {
	case !r.whole || end < r.carried.End:
		return false, nil
	case r.carried.Is(xid, end):
		r.whole, r.inside = false, false
		return true, nil
	}
	return false, errUnmatched
}

// idle takes a keepalive: the server has sent every transaction that ends at or before end.
func (r *resume) idle(end pglogrepl.LSN) error {
	if r.whole && end >= r.carried.End {
		return errUnmatched
	}
	return nil
}

// bound says whether a position of history from may be carried over to the server that now answers
// as history to. fork is where to's timeline left from's, where they differ.
func bound(from, to history, c checkpoint.Carried, fork func() (pglogrepl.LSN, error)) (checkpoint.Carried, string, error) {
	none := checkpoint.Carried{}
	switch {
	case c == none:
		return none, "", nil
	case from.systemID != to.systemID:
		return none, fmt.Sprintf("another database cluster (system id %s, was %s)", to.systemID, from.systemID), nil
	case from.slot != to.slot:
		return none, "another slot", nil
	case from.timeline == to.timeline:
		return c, "", nil
	case from.timeline > to.timeline:
		return none, fmt.Sprintf("an older timeline (%d, was %d)", to.timeline, from.timeline), nil
	}
	at, err := fork()
	if err != nil {
		return none, "", err
	}
	if c.End > at {
		return none, fmt.Sprintf("timeline %d, which left the old one at %s, before what was published last (%s)", to.timeline, at, c.End), nil
	}
	if c.Part.Final >= at {
		c.Part.Rows = 0
	}
	return c, "", nil
}

// beyond says that a server whose WAL is on disk up to flushed cannot have sent what c was made of: a
// walsender sends nothing before it is on disk. The server was restored (H4), and waiting for the
// position would hold back the events of its new history for as long as that is shorter.
func beyond(c checkpoint.Carried, flushed pglogrepl.LSN) bool {
	return c.End > flushed || c.Part.Rows > 0 && c.Part.Final > flushed
}
