// Package outbox is the table that services write their events to: the shape of a row, the names of
// its columns, and what every other package calls an event.
package outbox

import (
	"encoding/hex"
	"strconv"
	"time"

	"github.com/jackc/pglogrepl"
)

// EventID is the value of the row's uuid column: what consumers recognise an event by, and half of
// what a row is settled by.
type EventID [16]byte

// String prints the id as PostgreSQL prints a uuid: lower case, 8-4-4-4-12.
func (id EventID) String() string { return string(id.Append(nil)) }

// Append appends the 36 characters of the id to dst.
func (id EventID) Append(dst []byte) []byte {
	dst = hex.AppendEncode(dst, id[0:4])
	dst = append(dst, '-')
	dst = hex.AppendEncode(dst, id[4:6])
	dst = append(dst, '-')
	dst = hex.AppendEncode(dst, id[6:8])
	dst = append(dst, '-')
	dst = hex.AppendEncode(dst, id[8:10])
	dst = append(dst, '-')
	return hex.AppendEncode(dst, id[10:16])
}

// Position is where in the stream an insert was found. It is the same each time the same insert is
// sent, so that a consumer can tell a repeat from something new without a table of its own.
type Position struct {
	Timeline int32         // of the server that sent it; 0 means that the event does not come from the stream
	LSN      pglogrepl.LSN // start of the commit record of its transaction (Begin's final LSN)
	Ordinal  uint32        // of the insert in its transaction as sent, counted from 0, rows of other tables included
}

// Append appends the position as timeline/LSN/ordinal in fixed-width hexadecimal (8/16/8 digits), so
// that positions of one timeline compare as strings.
func (p Position) Append(dst []byte) []byte {
	dst = appendHex(dst, uint64(uint32(p.Timeline)), 8)
	dst = append(dst, '/')
	dst = appendHex(dst, uint64(p.LSN), 16)
	dst = append(dst, '/')
	return appendHex(dst, uint64(p.Ordinal), 8)
}

// Before compares two positions of one timeline.
func (p Position) Before(q Position) bool {
	return p.LSN < q.LSN || p.LSN == q.LSN && p.Ordinal < q.Ordinal
}

func (p Position) String() string { return string(p.Append(nil)) }

func appendHex(dst []byte, v uint64, width int) []byte {
	var buf [16]byte
	digits := strconv.AppendUint(buf[:0], v, 16)
	for i := len(digits); i < width; i++ {
		dst = append(dst, '0')
	}
	return append(dst, digits...)
}

// Event is one outbox row as PostgreSQL holds it. Nothing in it has been parsed and printed again.
//
// Every byte slice aliases the buffer that the row was read into and is valid only until the source
// reads on; who keeps an event copies it. A nil slice is SQL NULL or a column that the table does
// not have; an empty one is an empty value.
type Event struct {
	RowID         int64
	ID            EventID
	AggregateType []byte
	AggregateID   []byte
	EventType     []byte
	PartitionKey  []byte
	Topic         []byte
	Payload       []byte
	Headers       []byte    // JSON text of an object
	CreatedAt     time.Time // UTC; the zero time where the column is NULL or missing
	Published     bool      // published_at was set by the writer itself: "do not publish"
	Position      Position
	Size          int // bytes of the row as sent, for bounds; above the source's limit the payload is nil
}
