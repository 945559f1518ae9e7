package pgfake

import (
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgtype"

	"walrelay/outbox"
)

// Row is an outbox row as its writer inserts it. nil is NULL.
type Row struct {
	ID            int64          // 0 takes the next of the sequence
	EventID       outbox.EventID // zero takes one made from the row's id and transaction
	AggregateType string
	AggregateID   string
	EventType     string
	Payload       []byte
	Headers       []byte
	Topic         *string
	PartitionKey  *string
	CreatedAt     time.Time // zero: the time of the insert
	PublishedAt   time.Time // set by the writer: "do not publish"

	Relation string            // not empty: the insert is into that other published table, not into the outbox
	Deleted  bool              // deleted again by the same transaction: streamed, never in the table
	Text     map[string][]byte // column texts as the stream carries them, instead of the above: rows that cannot be read
}

// row is a Row in the table and in the WAL.
type row struct {
	Row
	txn      *Txn
	lsn      pglogrepl.LSN // of its insert record
	shape    *shape        // the table's columns when it was inserted
	streamed bool          // the publication held its table then

	gone     gone // why it is no longer in the table
	marked   time.Time
	settled  pglogrepl.LSN // end of the WAL record that marked or deleted it for the relay; 0 when nobody did
	lockedBy any           // who holds the row: app, the *Conn of a settle that is not committed, or nil
}

// gone says who removed a row.
type gone uint8

const (
	present gone = iota
	removedByApp
	deletedByRelay
)

// table is the outbox table's present state.
type table struct {
	rows      map[int64]*row // by id; rows of committed transactions, visible or not
	nextID    int64
	shape     *shape
	published bool
	locked    bool // LOCK TABLE by the application
}

// shape is a set of columns; every ALTER TABLE makes a new one, and a Relation message tells it.
type shape struct{ columns []tableColumn }

type tableColumn struct {
	name string
	oid  uint32
	key  bool
}

func newTable() table {
	return table{
		rows:      make(map[int64]*row),
		nextID:    1,
		published: true,
		shape: &shape{[]tableColumn{ // in the order of migrations/
			{"id", pgtype.Int8OID, true},
			{"event_id", pgtype.UUIDOID, false},
			{"aggregate_type", pgtype.TextOID, false},
			{"aggregate_id", pgtype.TextOID, false},
			{"event_type", pgtype.TextOID, false},
			{"payload", pgtype.JSONBOID, false},
			{"headers", pgtype.JSONBOID, false},
			{"topic", pgtype.TextOID, false},
			{"partition_key", pgtype.TextOID, false},
			{"created_at", pgtype.TimestamptzOID, false},
			{"published_at", pgtype.TimestamptzOID, false},
		}},
	}
}

// RowState is what the table holds of a row.
type RowState struct {
	Row     Row
	XID     uint64
	Visible bool      // other snapshots see its transaction
	Marked  time.Time // published_at as it is now; zero is NULL
	Locked  bool
	Removed bool // not in the table any more
}

// Row returns the state of a row of a committed transaction. Rows that are gone are not found.
func (s *Server) Row(id int64) (RowState, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.table.rows[id]
	if !ok {
		return RowState{}, false
	}
	return r.state(), true
}

func (r *row) state() RowState {
	return RowState{Row: r.Row, XID: r.txn.XID, Visible: r.txn.shown, Marked: r.marked, Locked: r.lockedBy != nil, Removed: r.gone != present}
}

// Unmarked is the number of visible rows that are neither marked nor gone.
func (s *Server) Unmarked() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, r := range s.table.rows {
		if r.txn.shown && r.marked.IsZero() {
			n++
		}
	}
	return n
}

// app is the holder of rows that the application has locked.
type app struct{}

// LockRow is an application's SELECT … FOR UPDATE that stays open; UnlockRow ends it.
func (s *Server) LockRow(id int64) bool   { return s.setLock(id, app{}) }
func (s *Server) UnlockRow(id int64) bool { return s.setLock(id, nil) }

func (s *Server) setLock(id int64, holder any) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.table.rows[id]
	if !ok || !r.txn.shown {
		return false
	}
	if _, relay := r.lockedBy.(*Conn); relay {
		return false
	}
	r.lockedBy = holder
	s.cond.Broadcast()
	return true
}

// LockTable is an application's LOCK TABLE … ACCESS EXCLUSIVE; every statement on the table waits
// until UnlockTable, or until its lock_timeout (H17).
func (s *Server) LockTable()   { s.lockTable(true) }
func (s *Server) UnlockTable() { s.lockTable(false) }

func (s *Server) lockTable(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.table.locked = on
	s.cond.Broadcast()
}

// DeleteRow is an application's own clean-up.
func (s *Server) DeleteRow(id int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.table.rows[id]
	if !ok || !r.txn.shown || r.lockedBy != nil {
		return false
	}
	r.gone = removedByApp
	delete(s.table.rows, id)
	s.writeOtherLocked(true)
	return true
}

// MarkRow is a person's UPDATE of published_at; the zero time is NULL.
func (s *Server) MarkRow(id int64, at time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.table.rows[id]
	if !ok || !r.txn.shown || r.lockedBy != nil {
		return false
	}
	r.marked = at
	s.writeOtherLocked(true)
	return true
}

// AddColumn is ALTER TABLE … ADD COLUMN; rows inserted from now on carry it, as NULL.
func (s *Server) AddColumn(name string, oid uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.table.shape.columns
	s.table.shape = &shape{append(old[:len(old):len(old)], tableColumn{name: name, oid: oid})}
}

// Publish takes the table into the publication or out of it; what is inserted while it is out is not
// streamed, and keepalives go past it (H21).
func (s *Server) Publish(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.table.published = on
}

// Published says whether the table is in the publication.
func (s *Server) Published() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.table.published
}
