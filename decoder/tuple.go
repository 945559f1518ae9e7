package decoder

import (
	"encoding/binary"
	"fmt"

	"walrelay/outbox"
)

// field is one column of a row as it was sent.
type field struct {
	form byte // one of the forms below
	data []byte
}

// How a column is sent (TupleData). formDropped is our own: a column of a row above the limit that
// was too long to keep.
const (
	formNull    = 'n'
	formUnsent  = 'u' // an unchanged TOAST value
	formText    = 't'
	formBinary  = 'b'
	formDropped = 0
)

// keepLimit is how many bytes of one column of a row above the limit are kept. Ids and types are far
// shorter, and the whole of such a row stays below roleCount × keepLimit.
const keepLimit = 1 << 10

// insertHeader is the length of an Insert up to its first column: kind, relation id, 'N', number of columns.
const insertHeader = 8

// decodeInsert finds the columns that are needed and makes the event of them.
func (d *Decoder) decodeInsert(msg []byte) error {
	if len(msg) < insertHeader {
		return malformed(KindInsert, len(msg), "its head is cut short")
	}
	if ours, err := d.decodeInsertHeader(msg); !ours {
		return err
	}
	large := d.rowLimit > 0 && len(msg) > d.rowLimit
	off := insertHeader
	for _, slot := range d.relation.slots {
		if off >= len(msg) {
			return malformed(KindInsert, off, missingColumns)
		}
		f := field{form: msg[off]}
		off++
		switch f.form {
		case formNull, formUnsent:
		case formText, formBinary:
			if len(msg)-off < 4 {
				return malformed(KindInsert, off, cutLength)
			}
			n := binary.BigEndian.Uint32(msg[off:])
			off += 4
			if uint64(n) > uint64(len(msg)-off) {
				return malformed(KindInsert, off, cutColumn)
			}
			end := off + int(n)
			f.data = msg[off:end:end]
			off = end
		default:
			return unknownForm(off-1, f.form)
		}
		if slot < 0 {
			continue
		}
		if large && len(f.data) > keepLimit {
			f = field{form: formDropped}
		}
		d.row[slot] = f
	}
	if off != len(msg) {
		return malformed(KindInsert, off, surplus)
	}
	return d.decodeRow(len(msg), large)
}

// decodeInsertHeader reads whose row it is. A row of another relation is passed over, but only of a
// relation that has been described: to take an unknown one for another's could lose an event.
func (d *Decoder) decodeInsertHeader(head []byte) (ours bool, err error) {
	id := binary.BigEndian.Uint32(head[1:])
	if head[5] != 'N' {
		return false, malformed(KindInsert, 5, "no new tuple")
	}
	if !d.relation.is(id) {
		if id == d.other && id != 0 {
			return false, nil
		}
		if _, ok := d.others[id]; !ok {
			return false, malformed(KindInsert, 1, fmt.Sprintf("relation %d has not been described", id))
		}
		d.other = id
		return false, nil
	}
	if d.relation.unfit != nil {
		return false, d.relation.unfit
	}
	if n := int(binary.BigEndian.Uint16(head[6:])); n != len(d.relation.slots) {
		return false, malformed(KindInsert, 6, fmt.Sprintf("%d columns where the relation has %d", n, len(d.relation.slots)))
	}
	return true, nil
}

// What can be wrong with a tuple.
const (
	missingColumns = "columns are missing"
	cutLength      = "the length of a column is cut short"
	cutColumn      = "a column is cut short"
)

func unknownForm(offset int, form byte) error {
	return malformed(KindInsert, offset, fmt.Sprintf("unknown form %q of a column", form))
}

// decodeRow makes the event of the fields in d.row. It goes on behind a column that cannot be decoded,
// so that the error and the event tell as much of the row as can be told.
func (d *Decoder) decodeRow(size int, large bool) error {
	d.insert, d.fault = true, nil
	d.event = outbox.Event{Size: size}
	ev := &d.event
	ev.RowID = d.integer(roleID)
	ev.ID = d.uuid(roleEventID)
	ev.AggregateType = d.text(roleAggregateType)
	ev.AggregateID = d.key(roleAggregateID, &d.printed[0])
	ev.EventType = d.text(roleEventType)
	ev.Topic = d.text(roleTopic)
	ev.PartitionKey = d.key(rolePartitionKey, &d.printed[1])
	ev.CreatedAt = d.timestamp(roleCreatedAt)
	ev.Published = d.present(rolePublishedAt)
	if !large {
		ev.Headers = d.document(roleHeaders)
		ev.Payload = d.document(rolePayload)
	}
	if d.fault != nil {
		return &RowError{RowID: ev.RowID, EventID: ev.ID, Column: d.columns[d.faulty], Err: d.fault}
	}
	return nil
}
