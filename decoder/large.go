package decoder

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// wholeLimit is the size up to which a large message that is not a row is read whole. A Relation of
// 1600 columns, the most a table can have, with names of 63 bytes is 120 kB.
const wholeLimit = 1 << 20

// DecodeLarge is Decode for a message of n bytes that is too large to be held: it is read from r and
// thrown away on the way. Of a row of the table the ids and other columns of up to 1 KiB are kept,
// wherever they stand; Payload and Headers are nil and Event.Size is n. A row of another relation, an
// Update, a Delete and a Message are passed over whole.
//
// Exactly n bytes are read, also when it returns an error, unless the error is r's own, which is
// wrapped. r must not give up for a deadline in between: what was read until then cannot be taken up
// again. Memory stays below 1 MiB, and below 16 KiB for a row.
func (d *Decoder) DecodeLarge(r io.Reader, n int) (Kind, error) {
	d.insert, d.truncated = false, false
	if n <= 0 {
		return 0, errEmpty
	}
	d.large.open(r, n)
	kind, err := d.decodeLarge(n)
	if d.large.err == nil {
		d.large.discard(d.large.left)
	}
	readErr := d.large.err
	d.large.close()
	if readErr != nil {
		d.insert, d.truncated = false, false
		return kind, fmt.Errorf("read a %s of %d bytes: %w", kind, n, readErr)
	}
	return kind, err
}

func (d *Decoder) decodeLarge(n int) (Kind, error) {
	l := &d.large
	kind := Kind(l.byte())
	switch kind {
	case KindInsert:
		return kind, d.decodeLargeInsert(n)
	case KindUpdate, KindDelete, KindMessage:
		return kind, nil
	case KindBegin, KindCommit, KindRelation, KindTruncate, KindOrigin, KindType:
		if n > wholeLimit {
			return kind, malformed(kind, 0, fmt.Sprintf("%d bytes are more than any has", n))
		}
		msg := make([]byte, n)
		msg[0] = byte(kind)
		if l.read(msg[1:]); l.err != nil {
			return kind, nil
		}
		return d.Decode(msg)
	default:
		if l.err != nil {
			return 0, nil
		}
		return d.Decode([]byte{byte(kind)})
	}
}

// decodeLargeInsert is decodeInsert with a reader in place of the message.
func (d *Decoder) decodeLargeInsert(n int) error {
	l := &d.large
	if n < insertHeader {
		return malformed(KindInsert, n, "its head is cut short")
	}
	head := l.head[:]
	head[0] = byte(KindInsert)
	l.read(head[1:])
	if l.err != nil {
		return nil
	}
	if ours, err := d.decodeInsertHeader(head); !ours {
		return err
	}
	for _, slot := range d.relation.slots {
		if l.left == 0 {
			return malformed(KindInsert, n, missingColumns)
		}
		f := field{form: l.byte()}
		switch f.form {
		case formNull, formUnsent:
		case formText, formBinary:
			if l.left < 4 {
				return malformed(KindInsert, n-l.left, cutLength)
			}
			size := l.uint32()
			if uint64(size) > uint64(l.left) {
				return malformed(KindInsert, n-l.left, cutColumn)
			}
			if slot >= 0 && size <= keepLimit {
				f.data = l.keep(int(size))
				break
			}
			l.discard(int(size))
			f.form = formDropped
		default:
			if l.err != nil {
				return nil
			}
			return unknownForm(n-l.left-1, f.form)
		}
		if l.err != nil {
			return nil
		}
		if slot >= 0 {
			d.row[slot] = f
		}
	}
	if l.left > 0 {
		return malformed(KindInsert, n-l.left, surplus)
	}
	return d.decodeRow(n, true)
}

// largeReader reads one large message and counts what is left of it. The first error of the reader
// below stops it: from then on it returns zero bytes.
type largeReader struct {
	r    io.Reader
	left int
	err  error
	head [insertHeader]byte
	kept []byte // the columns kept, one behind the other
	bin  []byte // what is thrown away passes through here
}

func (l *largeReader) open(r io.Reader, n int) {
	l.r, l.left, l.err = r, n, nil
	if l.kept == nil {
		l.kept = make([]byte, 0, int(roleCount)*keepLimit)
	}
	l.kept = l.kept[:0]
}

func (l *largeReader) close() { l.r = nil }

// read fills b.
func (l *largeReader) read(b []byte) {
	if l.err != nil {
		clear(b)
		return
	}
	if _, err := io.ReadFull(l.r, b); err != nil {
		clear(b)
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		l.err = err
		return
	}
	l.left -= len(b)
}

func (l *largeReader) byte() byte {
	b := l.head[:1]
	l.read(b)
	return b[0]
}

func (l *largeReader) uint32() uint32 {
	b := l.head[:4]
	l.read(b)
	return binary.BigEndian.Uint32(b)
}

// keep reads n bytes that stay valid until the next message. There is room for all that are kept: at
// most one column per role, of keepLimit each.
func (l *largeReader) keep(n int) []byte {
	from := len(l.kept)
	l.kept = l.kept[:from+n]
	b := l.kept[from : from+n : from+n]
	l.read(b)
	return b
}

// discard throws n bytes away, through a buffered reader's own buffer where there is one.
func (l *largeReader) discard(n int) {
	if b, ok := l.r.(interface{ Discard(int) (int, error) }); ok && l.err == nil {
		if _, err := b.Discard(n); err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			l.err = err
			return
		}
		l.left -= n
		return
	}
	if l.bin == nil {
		l.bin = make([]byte, 4<<10)
	}
	for n > 0 && l.err == nil {
		part := l.bin[:min(n, len(l.bin))]
		l.read(part)
		n -= len(part)
	}
}
