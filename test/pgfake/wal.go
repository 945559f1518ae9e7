package pgfake

import (
	"sort"
	"time"

	"github.com/jackc/pglogrepl"
)

// wal is the log as a logical walsender reads it: what it has decoded, and where each commit ends.
type wal struct {
	insert, flush pglogrepl.LSN // ends of what is written and of what is on disk
	entries       []entry       // ordered by LSN, without gaps in meaning
	undo          []undo        // what a crash takes back, oldest first
}

// entry is a stretch of WAL.
type entry struct {
	start, end pglogrepl.LSN
	kind       entryKind
	txn        *Txn          // of a commit
	oldest     pglogrepl.LSN // of running-xacts: where a decoder must start to see every open transaction whole
}

type entryKind uint8

const (
	entryOther        entryKind = iota // changes, other tables, other databases: nothing for the stream by itself
	entryCommit                        // the commit record of txn
	entryRunningXacts                  // what lets a slot's restart_lsn move
)

// undo takes back a change that was visible before its WAL was on disk.
type undo struct {
	lsn  pglogrepl.LSN
	back func()
}

const (
	pageSize         = 8192 // of WAL
	pageHeader       = 24
	commitRecord     = 0x30
	rowRecord        = 0x80 // of an insert, without its payload
	runningXactsSize = 0x38
	shutdownSize     = 0x78 // checkpoint record
)

// put appends a record and returns its start and end. A record that ends at a page's end is followed
// by a page header, so the next one starts behind it; otherwise a record starts where the last ended.
func (w *wal) put(size int) (start, end pglogrepl.LSN) {
	start = w.insert
	if start%pageSize == 0 {
		start += pageHeader
	}
	end = start + pglogrepl.LSN((size+7)&^7)
	w.insert = end
	return start, end
}

func (w *wal) append(kind entryKind, size int) *entry {
	start, end := w.put(size)
	w.entries = append(w.entries, entry{start: start, end: end, kind: kind})
	return &w.entries[len(w.entries)-1]
}

// at is the index of the first entry that ends above lsn.
func (w *wal) at(lsn pglogrepl.LSN) int {
	return sort.Search(len(w.entries), func(i int) bool { return w.entries[i].end > lsn })
}

// flushTo makes everything up to lsn durable.
func (w *wal) flushTo(lsn pglogrepl.LSN) {
	w.flush = max(w.flush, lsn)
	n := 0
	for n < len(w.undo) && w.undo[n].lsn <= w.flush {
		n++
	}
	w.undo = w.undo[n:]
}

// crash forgets what is not on disk.
func (w *wal) crash() {
	for i := len(w.undo) - 1; i >= 0; i-- {
		w.undo[i].back()
	}
	w.undo = nil
	n := len(w.entries)
	for n > 0 && w.entries[n-1].end > w.flush {
		n--
	}
	w.entries = w.entries[:n]
	w.insert = w.flush
}

// Txn is one committed transaction.
type Txn struct {
	XID        uint64        // 64 bits; Begin carries the lower 32
	First      pglogrepl.LSN // of its first change; 0 where it has none
	Final      pglogrepl.LSN // start of its commit record: Begin's final LSN and Commit's commit LSN
	End        pglogrepl.LSN // end of its commit record: the position to confirm
	CommitTime time.Time
	Foreign    bool // of another database: a walsender decodes it and sends nothing

	rows  []*row
	raw   [][]byte // pgoutput messages sent before Commit as they are
	shown bool     // other snapshots see it
}

// LSN is where the server's WAL ends: what is inserted and what is on disk.
func (s *Server) LSN() (insert, flush pglogrepl.LSN) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.wal.insert, s.wal.flush
}

// Noise writes and flushes that many bytes of WAL that no stream shows: a busy other database, an
// index build. Keepalives move past it.
func (s *Server) Noise(bytes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wal.append(entryOther, bytes)
	s.wal.flushTo(s.wal.insert)
	s.wakeStreamsLocked()
}

// RunningXacts writes what the background writer writes every 15 seconds. Once a client has confirmed
// a position behind it, its slot's restart_lsn moves and the slot is saved.
func (s *Server) RunningXacts() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.runningXactsLocked()
	s.wal.flushTo(s.wal.insert)
	s.wakeStreamsLocked()
}

func (s *Server) runningXactsLocked() pglogrepl.LSN {
	e := s.wal.append(entryRunningXacts, runningXactsSize)
	e.oldest = e.start
	for _, tx := range s.running {
		if tx.txn.First != 0 && tx.txn.First < e.oldest {
			e.oldest = tx.txn.First
		}
	}
	return e.end
}

// Flush puts asynchronous commits on disk, as the WAL writer does after a moment.
func (s *Server) Flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wal.flushTo(s.wal.insert)
	s.wakeStreamsLocked()
}

// Txns are the committed transactions, oldest first. Their rows must not be changed.
func (s *Server) Txns() []*Txn {
	s.mu.Lock()
	defer s.mu.Unlock()
	var txns []*Txn
	for _, e := range s.wal.entries {
		if e.kind == entryCommit {
			txns = append(txns, e.txn)
		}
	}
	return txns
}

// Rows are what the transaction inserted.
func (t *Txn) Rows() []Row {
	rows := make([]Row, len(t.rows))
	for i, r := range t.rows {
		rows[i] = r.Row
	}
	return rows
}
