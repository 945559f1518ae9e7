package pgfake

import (
	"encoding/binary"
	"hash/fnv"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
)

// epoch is the zero of PostgreSQL's clock.
var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

func pgTime(t time.Time) uint64 { return uint64(t.Sub(epoch).Microseconds()) }

// copyData begins a CopyData message; endCopy writes its length.
func copyData(out []byte) ([]byte, int) {
	return append(out, 'd', 0, 0, 0, 0), len(out) + 1
}

func endCopy(out []byte, at int) []byte {
	binary.BigEndian.PutUint32(out[at:], uint32(len(out)-at))
	return out
}

// xlogData is the header of a logical message: both positions are the same in logical mode, and 0 for
// Relation (FACTS A1).
func xlogData(out []byte, at lsn) []byte {
	out = append(out, 'w')
	out = binary.BigEndian.AppendUint64(out, uint64(at))
	out = binary.BigEndian.AppendUint64(out, uint64(at))
	return binary.BigEndian.AppendUint64(out, pgTime(time.Now()))
}

// message is one pgoutput message in XLogData in CopyData.
func message(out []byte, at lsn, body func([]byte) []byte) []byte {
	out, start := copyData(out)
	return endCopy(body(xlogData(out, at)), start)
}

func appendKeepalive(out []byte, end lsn, reply bool) []byte {
	out, start := copyData(out)
	out = append(out, 'k')
	out = binary.BigEndian.AppendUint64(out, uint64(end))
	out = binary.BigEndian.AppendUint64(out, pgTime(time.Now()))
	if reply {
		out = append(out, 1)
	} else {
		out = append(out, 0)
	}
	return endCopy(out, start)
}

func (t *Txn) appendBegin(out []byte) []byte {
	return message(out, t.First, func(b []byte) []byte {
		b = append(b, 'B')
		b = binary.BigEndian.AppendUint64(b, uint64(t.Final))
		b = binary.BigEndian.AppendUint64(b, pgTime(t.CommitTime))
		return binary.BigEndian.AppendUint32(b, uint32(t.XID))
	})
}

func (t *Txn) appendCommit(out []byte) []byte {
	return message(out, t.End, func(b []byte) []byte {
		b = append(b, 'C', 0)
		b = binary.BigEndian.AppendUint64(b, uint64(t.Final))
		b = binary.BigEndian.AppendUint64(b, uint64(t.End))
		return binary.BigEndian.AppendUint64(b, pgTime(t.CommitTime))
	})
}

// relation is what a Relation message tells of the table that a row is in.
type relation struct {
	oid          uint32
	schema, name string
	shape        *shape
}

// otherShape is that of every other published table.
var otherShape = &shape{[]tableColumn{{"id", pgtype.Int8OID, true}, {"note", pgtype.TextOID, false}}}

func (s *Server) relationOf(r *row) relation {
	if r.Relation == "" {
		return relation{s.cfg.TableOID, s.cfg.Table.Schema, s.cfg.Table.Name, r.shape}
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(r.Relation))
	return relation{1<<20 + h.Sum32()>>12, "public", r.Relation, otherShape}
}

func (r relation) append(out []byte) []byte {
	return message(out, 0, func(b []byte) []byte {
		b = append(b, 'R')
		b = binary.BigEndian.AppendUint32(b, r.oid)
		b = append(append(b, r.schema...), 0)
		b = append(append(b, r.name...), 0)
		b = append(b, 'd')
		b = binary.BigEndian.AppendUint16(b, uint16(len(r.shape.columns)))
		for _, col := range r.shape.columns {
			if col.key {
				b = append(b, 1)
			} else {
				b = append(b, 0)
			}
			b = append(append(b, col.name...), 0)
			b = binary.BigEndian.AppendUint32(b, col.oid)
			b = binary.BigEndian.AppendUint32(b, 0xffffffff) // no type modifier
		}
		return b
	})
}

func (r *row) append(out []byte, rel relation) []byte {
	return message(out, r.lsn, func(b []byte) []byte {
		b = append(b, 'I')
		b = binary.BigEndian.AppendUint32(b, rel.oid)
		b = append(b, 'N')
		b = binary.BigEndian.AppendUint16(b, uint16(len(rel.shape.columns)))
		for _, col := range rel.shape.columns {
			at := len(b)
			b = append(b, 't', 0, 0, 0, 0)
			var null bool
			if b, null = r.appendText(b, col.name); null {
				b = append(b[:at], 'n')
				continue
			}
			binary.BigEndian.PutUint32(b[at+1:], uint32(len(b)-at-5))
		}
		return b
	})
}

// appendText prints a column as PostgreSQL prints it with the settings that a relay pins.
func (r *row) appendText(b []byte, column string) (text []byte, null bool) {
	if v, ok := r.Text[column]; ok {
		return append(b, v...), v == nil
	}
	optional := func(s *string) ([]byte, bool) {
		if s == nil {
			return b, true
		}
		return append(b, *s...), false
	}
	switch column {
	case "id":
		return strconv.AppendInt(b, r.ID, 10), false
	case "event_id":
		return r.EventID.Append(b), false
	case "aggregate_type":
		return append(b, r.AggregateType...), false
	case "aggregate_id":
		return append(b, r.AggregateID...), false
	case "event_type":
		return append(b, r.EventType...), false
	case "payload":
		return append(b, r.Payload...), r.Payload == nil
	case "headers":
		return append(b, r.Headers...), r.Headers == nil
	case "topic":
		return optional(r.Topic)
	case "partition_key":
		return optional(r.PartitionKey)
	case "created_at":
		return appendTime(b, r.CreatedAt), false
	case "published_at":
		if r.PublishedAt.IsZero() {
			return b, true
		}
		return appendTime(b, r.PublishedAt), false
	}
	return b, true // a column added later, or of another table
}

func appendTime(b []byte, t time.Time) []byte {
	return t.UTC().AppendFormat(b, "2006-01-02 15:04:05.999999-07")
}
