package decoder

import (
	"encoding/binary"
	"encoding/hex"
	"math"
	"strconv"
	"time"

	"walrelay/outbox"
)

// The methods below read the column of one role out of the row at hand. What cannot be read is noted
// as the row's fault, and reads as the zero value.

func (d *Decoder) failed(r role, err error) {
	if d.fault == nil {
		d.fault, d.faulty = err, r
	}
}

// value finds the column. ok is false where there is no value: no column, NULL, or a fault.
func (d *Decoder) value(r role) (f field, t pgType, ok bool) {
	at := d.relation.roles[r]
	if at.slot < 0 {
		return field{}, 0, false
	}
	f = d.row[at.slot]
	switch f.form {
	case formText, formBinary, formDropped:
		return f, at.typ, true
	case formNull:
		if r <= lastNotNull {
			d.failed(r, errNull)
		}
	default:
		d.failed(r, errUnsent)
	}
	return field{}, 0, false
}

// text is a column of characters, nil where it was dropped.
func (d *Decoder) text(r role) []byte {
	f, _, _ := d.value(r)
	return f.data
}

// present says whether a column has a value, whatever it is.
func (d *Decoder) present(r role) bool {
	_, _, ok := d.value(r)
	return ok
}

// key is a column whose text form is a record key. The binary form of a type that is not text is
// printed into buf as PostgreSQL prints it, so that the key does not depend on the form.
func (d *Decoder) key(r role, buf *[36]byte) []byte {
	f, t, _ := d.value(r)
	if f.form != formBinary || t == typeText || t == typeUser {
		return f.data
	}
	if t == typeUUID {
		if len(f.data) != len(outbox.EventID{}) {
			d.failed(r, errWidth)
			return nil
		}
		return outbox.EventID(f.data).Append(buf[:0])
	}
	v, err := binaryInteger(f.data, t)
	if err != nil {
		d.failed(r, err)
		return nil
	}
	return strconv.AppendInt(buf[:0], v, 10)
}

func (d *Decoder) integer(r role) int64 {
	f, t, ok := d.value(r)
	if !ok {
		return 0
	}
	var v int64
	var err error
	switch f.form {
	case formText:
		v, err = parseInteger(f.data)
	case formBinary:
		v, err = binaryInteger(f.data, t)
	default:
		err = errTooLong
	}
	if err != nil {
		d.failed(r, err)
	}
	return v
}

func (d *Decoder) uuid(r role) outbox.EventID {
	f, t, ok := d.value(r)
	if !ok {
		return outbox.EventID{}
	}
	var id outbox.EventID
	var err error
	switch {
	case f.form == formDropped:
		err = errTooLong
	case f.form == formBinary && t == typeUUID:
		if len(f.data) != len(id) {
			err = errWidth
			break
		}
		id = outbox.EventID(f.data)
	default:
		id, err = parseUUID(f.data)
	}
	if err != nil {
		d.failed(r, err)
	}
	return id
}

func (d *Decoder) timestamp(r role) time.Time {
	f, t, ok := d.value(r)
	if !ok {
		return time.Time{}
	}
	var at time.Time
	var err error
	switch f.form {
	case formText:
		at, err = parseTimestamp(f.data, t == typeTimestamptz)
	case formBinary:
		at, err = binaryTimestamp(f.data)
	default:
		err = errTooLong
	}
	if err != nil {
		d.failed(r, err)
	}
	return at
}

// document is a payload or headers, byte for byte as PostgreSQL holds it: JSON in its text form,
// bytea as the bytes themselves.
func (d *Decoder) document(r role) []byte {
	f, t, ok := d.value(r)
	if !ok {
		return nil
	}
	switch {
	case t == typeJSONB && f.form == formBinary:
		// jsonb_send puts a version in front of the text.
		if len(f.data) == 0 || f.data[0] != 1 {
			d.failed(r, errJSONB)
			return nil
		}
		return f.data[1:]
	case t == typeBytea && f.form == formText:
		b, err := unhex(f.data)
		if err != nil {
			d.failed(r, err)
		}
		return b
	}
	return f.data
}

// unhex turns \x… into bytes, over the text itself.
func unhex(text []byte) ([]byte, error) {
	if len(text) < 2 || text[0] != '\\' || text[1] != 'x' {
		return nil, errHex
	}
	digits := text[2:]
	n, err := hex.Decode(digits, digits)
	if err != nil {
		return nil, errHex
	}
	return digits[:n:n], nil
}

func binaryInteger(b []byte, t pgType) (int64, error) {
	switch {
	case t == typeInt8 && len(b) == 8:
		return int64(binary.BigEndian.Uint64(b)), nil
	case t == typeInt4 && len(b) == 4:
		return int64(int32(binary.BigEndian.Uint32(b))), nil
	case t == typeInt2 && len(b) == 2:
		return int64(int16(binary.BigEndian.Uint16(b))), nil
	}
	return 0, errWidth
}

// parseInteger is strconv.ParseInt for bytes: that one would make a string of them.
func parseInteger(text []byte) (int64, error) {
	digits := text
	negative := len(text) > 0 && text[0] == '-'
	if negative {
		digits = text[1:]
	}
	if len(digits) == 0 {
		return 0, errInteger
	}
	limit := uint64(math.MaxInt64)
	if negative {
		limit++
	}
	var v uint64
	for _, c := range digits {
		if c < '0' || c > '9' {
			return 0, errInteger
		}
		if v > limit/10 {
			return 0, errInteger
		}
		if v = v*10 + uint64(c-'0'); v > limit {
			return 0, errInteger
		}
	}
	if negative {
		return int64(-v), nil
	}
	return int64(v), nil
}

// parseUUID reads the one form that uuid_out prints, in either case since a text column may hold it.
func parseUUID(text []byte) (outbox.EventID, error) {
	var id outbox.EventID
	if len(text) != 36 || text[8] != '-' || text[13] != '-' || text[18] != '-' || text[23] != '-' {
		return id, errUUID
	}
	at := 0
	for i := range id {
		switch at {
		case 8, 13, 18, 23:
			at++
		}
		high, low := hexDigit(text[at]), hexDigit(text[at+1])
		if high > 15 || low > 15 {
			return outbox.EventID{}, errUUID
		}
		id[i] = high<<4 | low
		at += 2
	}
	return id, nil
}

// hexDigit is above 15 for what is no hexadecimal digit.
func hexDigit(c byte) byte {
	switch {
	case c >= '0' && c <= '9':
		return c - '0'
	case c >= 'a' && c <= 'f':
		return c - 'a' + 10
	case c >= 'A' && c <= 'F':
		return c - 'A' + 10
	}
	return 0xff
}
