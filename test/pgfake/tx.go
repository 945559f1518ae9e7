package pgfake

import (
	"encoding/binary"
	"time"
)

// Tx is a transaction of a writer. It is used by one goroutine.
type Tx struct {
	s    *Server
	txn  *Txn
	done bool
	boot int // of the server when it began; after a crash nothing that it does counts
}

func (t *Tx) lost() bool { return t.boot != t.s.boots }

// Begin starts a transaction. As in PostgreSQL it has no xid until it writes.
func (s *Server) Begin() *Tx { return s.begin(&Txn{}) }

// BeginForeign starts a transaction in another database of the cluster.
func (s *Server) BeginForeign() *Tx { return s.begin(&Txn{Foreign: true}) }

func (s *Server) begin(txn *Txn) *Tx {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &Tx{s: s, txn: txn, boot: s.boots}
}

// Commit inserts the rows in one transaction, flushed and visible.
func (s *Server) Commit(rows ...Row) *Txn {
	tx := s.Begin()
	tx.Insert(rows...)
	return tx.Commit()
}

// Insert writes rows into the outbox, or into the table that a row names.
func (t *Tx) Insert(rows ...Row) {
	s := t.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.txn.Foreign {
		panic("pgfake: another database has no outbox")
	}
	if t.lost() {
		return
	}
	t.assignLocked()
	var span entry
	for i := range rows {
		r := &row{Row: rows[i], txn: t.txn, shape: s.table.shape, streamed: s.table.published}
		if r.Relation == "" {
			s.completeLocked(r, len(t.txn.rows))
		}
		start, end := s.wal.put(rowRecord + len(r.Payload))
		r.lsn = start
		t.firstLocked(&span, start, end)
		t.txn.rows = append(t.txn.rows, r)
	}
	if len(rows) > 0 {
		s.wal.entries = append(s.wal.entries, span)
	}
}

// completeLocked fills in what a column's default would.
func (s *Server) completeLocked(r *row, ordinal int) {
	if r.ID == 0 {
		r.ID = s.table.nextID
	}
	s.table.nextID = max(s.table.nextID, r.ID+1)
	if r.EventID == [16]byte{} {
		// Unique over restarts that take ids back: the same id gets another transaction (H11).
		binary.BigEndian.PutUint64(r.EventID[:8], r.txn.XID)
		binary.BigEndian.PutUint32(r.EventID[8:12], uint32(ordinal))
		binary.BigEndian.PutUint32(r.EventID[12:], uint32(s.history))
	}
	if r.CreatedAt.IsZero() {
		r.CreatedAt = time.Now()
	}
	r.marked = r.PublishedAt
}

// Write writes that many bytes to tables that are not published: a transaction of which a stream
// shows nothing but Begin and Commit (PostgreSQL 14), or nothing at all.
func (t *Tx) Write(bytes int) {
	s := t.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.lost() {
		return
	}
	t.assignLocked()
	start, end := s.wal.put(bytes)
	var span entry
	t.firstLocked(&span, start, end)
	s.wal.entries = append(s.wal.entries, span)
}

// Raw puts a pgoutput message behind the rows written so far, as it is: a Truncate, a Message.
func (t *Tx) Raw(msg []byte) {
	t.Write(rowRecord)
	t.txn.raw = append(t.txn.raw, msg)
}

func (t *Tx) assignLocked() {
	if t.txn.XID != 0 {
		return
	}
	s := t.s
	for uint32(s.nextXID) < 3 { // 0, 1 and 2 mean something else in every epoch
		s.nextXID++
	}
	t.txn.XID = s.nextXID
	s.nextXID++
	s.running[t.txn.XID] = t
}

// XID is the transaction's 64-bit id; 0 before it has written.
func (t *Tx) XID() uint64 {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	return t.txn.XID
}

func (t *Tx) firstLocked(span *entry, start, end lsn) {
	if t.txn.First == 0 {
		t.txn.First = start
	}
	if span.start == 0 {
		span.start = start
	}
	span.end = end
}

// Commit commits: on disk, and visible at once. It returns nil where the server has crashed since
// Begin, which rolled the transaction back.
func (t *Tx) Commit() *Txn { return t.commit(true, true) }

// CommitHidden writes and flushes the commit record, so that the walsender sends the transaction, but
// other snapshots do not see it until Show: a backend that has not left ProcArray yet, or that waits
// for a synchronous standby (H1, H7).
func (t *Tx) CommitHidden() *Txn { return t.commit(true, false) }

// CommitAsync is a commit with synchronous_commit=off: visible, and lost if the server crashes before
// anything flushes (H11).
func (t *Tx) CommitAsync() *Txn { return t.commit(false, true) }

func (t *Tx) commit(flush, show bool) *Txn {
	s := t.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.done {
		panic("pgfake: the transaction has ended")
	}
	t.done = true
	if t.lost() {
		return nil
	}
	if t.txn.XID == 0 {
		return t.txn // a read-only transaction leaves no trace
	}
	t.txn.CommitTime = time.Now()
	e := s.wal.append(entryCommit, commitRecord)
	e.txn = t.txn
	t.txn.Final, t.txn.End = e.start, e.end
	for _, r := range t.txn.rows {
		switch {
		case r.Relation != "":
		case r.Deleted:
			r.gone = removedByApp
		default:
			s.table.rows[r.ID] = r
		}
	}
	if show {
		t.showLocked()
	}
	if flush {
		s.wal.flushTo(e.end)
	} else {
		s.wal.undo = append(s.wal.undo, undo{e.end, func() { s.loseLocked(t.txn) }})
	}
	s.wakeStreamsLocked()
	return t.txn
}

// Show makes a transaction that was committed by CommitHidden visible.
func (t *Tx) Show() {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	if !t.done || t.lost() {
		return
	}
	t.showLocked()
	t.s.cond.Broadcast()
}

func (t *Tx) showLocked() {
	t.txn.shown = true
	delete(t.s.running, t.txn.XID)
	t.s.lastXID = max(t.s.lastXID, t.txn.XID)
}

// Abort rolls back.
func (t *Tx) Abort() {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	t.done = true
	if t.txn.XID == 0 || t.lost() {
		return
	}
	delete(t.s.running, t.txn.XID)
	t.s.lastXID = max(t.s.lastXID, t.txn.XID)
	t.s.wal.append(entryOther, commitRecord)
	t.s.cond.Broadcast()
}

// loseLocked takes back a commit that a crash has lost. Its ids and its place in the sequence are
// free again.
func (s *Server) loseLocked(txn *Txn) {
	for _, r := range txn.rows {
		if s.table.rows[r.ID] == r {
			delete(s.table.rows, r.ID)
		}
		r.gone = removedByApp
	}
}

// writeOtherLocked writes and commits a transaction of the server's own making that no publication
// shows, and returns the end of its commit record: the WAL of a settle or of a clean-up.
func (s *Server) writeOtherLocked(flush bool) lsn {
	tx := &Tx{s: s, txn: &Txn{}, boot: s.boots}
	tx.assignLocked()
	start, end := s.wal.put(rowRecord)
	tx.txn.First = start
	s.wal.entries = append(s.wal.entries, entry{start: start, end: end})
	e := s.wal.append(entryCommit, commitRecord)
	e.txn = tx.txn
	tx.txn.Final, tx.txn.End, tx.txn.CommitTime = e.start, e.end, time.Now()
	tx.showLocked()
	if flush {
		s.wal.flushTo(e.end)
	}
	s.wakeStreamsLocked()
	return e.end
}
