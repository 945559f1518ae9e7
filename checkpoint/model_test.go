package checkpoint

import "github.com/jackc/pglogrepl"

// model is the tracker written to be believed: it keeps everything and computes every answer from scratch.
type model struct {
	settles bool
	start   pglogrepl.LSN
	base    Carried
	events  []modelEvent // transactions and idle positions, in order
	rows    []*modelRow  // by token - 1
	holding bool
}

type modelEvent struct {
	xid    uint32
	final  pglogrepl.LSN
	end    pglogrepl.LSN // 0 while open
	idle   bool
	insert []*modelRow // one per wire insert; nil is a skipped one
}

type modelRow struct {
	token    uint64
	row      Row
	size     int
	held     bool
	resolved bool
	settled  bool
}

func (m *model) done(r *modelRow, settled bool) bool {
	switch {
	case r == nil:
		return true
	case m.holding || r.held || !r.resolved:
		return false
	}
	return !settled || !m.settles || r.settled
}

func (e *modelEvent) rows() (rows []*modelRow) {
	for _, r := range e.insert {
		if r != nil {
			rows = append(rows, r)
		}
	}
	return rows
}

func (m *model) prefix(e *modelEvent, settled bool) uint32 {
	for i, r := range e.insert {
		if !m.done(r, settled) {
			return uint32(i)
		}
	}
	return uint32(len(e.insert))
}

func (m *model) whole(e *modelEvent, settled bool) bool {
	return e.end != 0 && !m.holding && int(m.prefix(e, settled)) == len(e.insert)
}

func (m *model) watermark(settled bool) pglogrepl.LSN {
	lsn := m.start
	for i := range m.events {
		if !m.whole(&m.events[i], settled) {
			break
		}
		lsn = max(lsn, m.events[i].end)
	}
	return lsn
}

func (m *model) carried() Carried {
	if m.holding {
		return m.base
	}
	now := Carried{Settled: m.watermark(true)}
	settledSoFar := true
	for i := range m.events {
		e := &m.events[i]
		if m.whole(e, false) {
			settledSoFar = settledSoFar && m.whole(e, true)
			if len(e.rows()) > 0 {
				now.End, now.XID = e.end, e.xid
			}
			continue
		}
		if n := m.prefix(e, false); n > 0 {
			now.Part = Part{XID: e.xid, Final: e.final, Rows: n}
			if settledSoFar {
				now.Part.Settled = m.prefix(e, true)
			}
		}
		break
	}
	for i := range m.events {
		if e := &m.events[i]; !m.whole(e, true) {
			if n := m.prefix(e, true); n > 0 {
				now.Unsettled = Part{XID: e.xid, Final: e.final, Rows: n}
			}
			break
		}
	}
	return m.base.merge(now)
}

func (m *model) pending() (pending []Pending) {
	if !m.settles {
		return nil
	}
	for i := range m.events {
		for _, r := range m.events[i].rows() {
			if !m.done(r, false) {
				return pending
			}
			if !r.settled {
				pending = append(pending, Pending{Token: r.token, Row: r.row, XID: m.events[i].xid})
			}
		}
	}
	return pending
}

// free counts the slots as the ring gives them back: from the oldest on.
func (m *model) free(capacity int) int {
	used := 0
	for _, r := range m.rows {
		if used > 0 || !m.done(r, true) {
			used++
		}
	}
	return capacity - used
}

func (m *model) count(f func(*modelRow) bool) (n int) {
	for _, r := range m.rows {
		if f(r) {
			n++
		}
	}
	return n
}

func (m *model) open() *modelEvent {
	if n := len(m.events); n > 0 && m.events[n-1].end == 0 {
		return &m.events[n-1]
	}
	return nil
}

func (m *model) lastEnd() (end pglogrepl.LSN) {
	for _, e := range m.events {
		end = max(end, e.end)
	}
	return end
}

// held counts the rows that the next session has to keep a slot for until the carried position has come.
func (m *model) held(c Carried) (n int) {
	for i := range m.events {
		e := &m.events[i]
		rows := int64(len(e.insert))
		if e.end == 0 || e.end > c.End {
			rows = 0
			if c.Part.Matches(e.xid, e.final) {
				rows = int64(c.Part.Rows)
			}
		}
		for ordinal := int64(c.SettledRows(e.xid, e.final)); ordinal < rows; ordinal++ {
			if e.insert[ordinal] != nil {
				n++
			}
		}
	}
	return n
}
