// Package decoder turns pgoutput messages (proto_version 1, text or binary tuples) into outbox events.
//
// It is pure: bytes in, values out; no I/O except the reader that DecodeLarge is given, no clock, no
// goroutine, no logger. No input makes it panic, and decoding a row allocates nothing.
//
// The layouts are those of the PostgreSQL documentation, chapter "Logical Replication Message
// Formats". The LSNs in the XLogData header in front of a message are of no use: they are 0 for
// Relation and Type, and for a Begin that an Origin follows.
package decoder

import (
	"time"

	"github.com/jackc/pglogrepl"

	"walrelay/outbox"
)

// Begin opens a transaction. All that follows up to its Commit belongs to it.
type Begin struct {
	FinalLSN   pglogrepl.LSN // start of the commit record: equal to Commit.CommitLSN
	CommitTime time.Time     // UTC, microseconds
	XID        uint32        // the top-level transaction, without its epoch
}

// Commit closes a transaction. Only EndLSN is a position that may be confirmed.
type Commit struct {
	CommitLSN  pglogrepl.LSN // start of the commit record
	EndLSN     pglogrepl.LSN // end of the commit record
	CommitTime time.Time     // UTC, microseconds
}

// Decoder holds what one stream has said about its relations: make a new one for each session. It is
// used by one goroutine.
//
// The results of Decode and DecodeLarge are valid until the next call of either. The slices of an
// Event alias the message, or a buffer of the decoder; nothing else does, so the caller may overwrite
// the message as soon as it is done with the event.
type Decoder struct {
	table    outbox.Table
	columns  [roleCount]string
	rowLimit int

	relation relation            // the table, as last described; id 0 until then
	others   map[uint32]struct{} // relations described in this stream that are not the table
	other    uint32              // the last of them that had a row
	types    map[uint32]string   // names of types outside the catalogue, for the next Relation

	begin     Begin
	commit    Commit
	truncated bool
	insert    bool // the last message was an insert into the table: event is valid
	event     outbox.Event

	row     [roleCount]field // the needed columns of the row at hand, by slot
	fault   error            // why its first undecodable column could not be decoded
	faulty  role             // that column
	printed [2][36]byte      // binary keys in their text form
	large   largeReader
}

// New returns a decoder for one table. rowLimit is the size in bytes above which a row keeps its ids
// and short columns only, its payload and headers being nil; 0 is no limit.
func New(table outbox.Table, cols outbox.Columns, rowLimit int) *Decoder {
	return &Decoder{
		table:    table,
		columns:  columnsByRole(cols),
		rowLimit: rowLimit,
		others:   make(map[uint32]struct{}),
		types:    make(map[uint32]string),
	}
}

// Decode reads one pgoutput message, which is what stands behind the 25 bytes of XLogData. A bytea
// payload in text form is unhexed in place, so a message can be decoded once.
//
// It returns a *RowError where one row cannot be read and the stream goes on, a *ShapeError where the
// table cannot serve as an outbox, and any other error where the stream is malformed. After a
// *RowError, Event holds all that could be read of the row.
func (d *Decoder) Decode(msg []byte) (Kind, error) {
	d.insert, d.truncated = false, false
	if len(msg) == 0 {
		return 0, errEmpty
	}
	kind, r := Kind(msg[0]), reader{msg: msg, off: 1}
	switch kind {
	case KindInsert:
		return kind, d.decodeInsert(msg)
	case KindBegin:
		d.begin = r.begin()
	case KindCommit:
		d.commit = r.commit()
	case KindRelation:
		return kind, d.decodeRelation(&r)
	case KindType:
		d.decodeType(&r)
	case KindTruncate:
		d.decodeTruncate(&r)
	case KindOrigin:
		r.uint64("LSN")
		r.string("origin name")
		r.end()
	case KindMessage:
		r.message()
	case KindUpdate, KindDelete:
		// Only inserts are events. A publication that sends more is not our concern here.
		return kind, nil
	default:
		return 0, malformed(kind, 0, "unknown message: not of protocol version 1")
	}
	return kind, r.err(kind)
}

// Begin is the transaction that was opened, after a KindBegin.
func (d *Decoder) Begin() Begin { return d.begin }

// Commit is the transaction's end, after a KindCommit.
func (d *Decoder) Commit() Commit { return d.commit }

// Event is the row, after a KindInsert, without its Position. It is nil when the row is of another
// relation than the table.
func (d *Decoder) Event() *outbox.Event {
	if !d.insert {
		return nil
	}
	return &d.event
}

// Truncated says, after a KindTruncate, whether the table was among the truncated relations.
func (d *Decoder) Truncated() bool { return d.truncated }

func (r *reader) begin() Begin {
	b := Begin{
		FinalLSN:   pglogrepl.LSN(r.uint64("final LSN")),
		CommitTime: fromMicroseconds(int64(r.uint64("commit time"))),
		XID:        r.uint32("xid"),
	}
	r.end()
	return b
}

func (r *reader) commit() Commit {
	r.byte("flags")
	c := Commit{
		CommitLSN:  pglogrepl.LSN(r.uint64("commit LSN")),
		EndLSN:     pglogrepl.LSN(r.uint64("end LSN")),
		CommitTime: fromMicroseconds(int64(r.uint64("commit time"))),
	}
	r.end()
	return c
}

// message walks over a pg_logical_emit_message: only its being there is of interest.
func (r *reader) message() {
	r.byte("flags")
	r.uint64("LSN")
	r.string("prefix")
	r.bytes(r.uint32("length"), "content")
	r.end()
}

func (d *Decoder) decodeTruncate(r *reader) {
	n := r.uint32("number of relations")
	r.byte("options")
	for ; n > 0 && r.ok(); n-- {
		id := r.uint32("relation id")
		d.truncated = d.truncated || d.relation.is(id)
	}
	r.end()
	d.truncated = d.truncated && r.ok()
}
