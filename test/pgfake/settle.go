package pgfake

import (
	"time"

	"github.com/jackc/pglogrepl"

	"walrelay/outbox"
)

type lsn = pglogrepl.LSN

// After is what a settle does to a row.
type After uint8

const (
	Mark   After = iota // set published_at
	Delete              // remove the row
	Keep                // nothing: the judge asks only what Kafka acknowledged
)

// Settled is the outcome of one settle statement: the index of every row that was asked for, in one
// of four sets, and the snapshot that they come from (H1).
type Settled struct {
	Touched  []int // marked or deleted now
	Marked   []int // in the table and marked already; none with Delete
	Locked   []int // in the table, to be touched, held by somebody
	Absent   []int // not in the table as this snapshot sees it, or another event under that id
	Snapshot Snapshot
}

// Settle is what the relay's settle statement does: one snapshot, FOR UPDATE SKIP LOCKED, by (id,
// event id). Its effect is there once the statement's transaction commits. It waits while the table
// is locked, within lock_timeout and statement_timeout.
func (c *Call) Settle(ids []int64, events []outbox.EventID, after After) (Settled, error) {
	s := c.Conn.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := c.Conn.waitLocked(func() bool { return !s.table.locked }); err != nil {
		return Settled{}, err
	}
	out := Settled{Snapshot: s.snapshotLocked()}
	var touched []*row
	for i, id := range ids {
		r, ok := s.table.rows[id]
		switch {
		case !ok || !r.txn.shown || r.EventID != events[i]:
			out.Absent = append(out.Absent, i)
		case !r.marked.IsZero() && after != Delete: // Delete takes a marked row as well
			out.Marked = append(out.Marked, i)
		case r.lockedBy == c.Conn: // asked for twice in one transaction
			out.Touched = append(out.Touched, i)
		case r.lockedBy != nil:
			out.Locked = append(out.Locked, i)
		default:
			out.Touched = append(out.Touched, i)
			r.lockedBy = c.Conn
			touched = append(touched, r)
			s.judge.settlingLocked(c.Conn, r)
		}
	}
	if len(touched) == 0 {
		return out, nil
	}
	at := time.Now()
	c.Conn.atEnd(func(commit bool) {
		for _, r := range touched {
			r.lockedBy = nil
		}
		if commit {
			s.settleLocked(touched, after, at, c.Conn.setting("synchronous_commit") != "off")
		}
		s.cond.Broadcast()
	})
	return out, nil
}

// settleLocked commits a settle. Without flush it is lost by a crash that comes before the next flush
// (H14).
func (s *Server) settleLocked(rows []*row, after After, at time.Time, flush bool) {
	end := s.writeOtherLocked(flush)
	for _, r := range rows {
		r.settled = end
		if after == Delete {
			r.gone = deletedByRelay
			delete(s.table.rows, r.ID)
			continue
		}
		r.marked = at
	}
	if flush {
		return
	}
	s.wal.undo = append(s.wal.undo, undo{end, func() {
		for _, r := range rows {
			r.settled, r.marked = 0, time.Time{}
			if r.gone == deletedByRelay {
				r.gone = present
				s.table.rows[r.ID] = r
			}
		}
	}})
}
