package decoder

import (
	"bytes"
	"encoding/binary"
)

// reader walks over a message. The first thing that is missing stops it: from then on it returns
// zero values, and err says what was missing and where. So a message is read without a check per field.
type reader struct {
	msg  []byte
	off  int
	miss string // what could not be read at off; empty while all is well
}

func (r *reader) ok() bool { return r.miss == "" }

func (r *reader) err(kind Kind) error {
	if r.ok() {
		return nil
	}
	return malformed(kind, r.off, r.miss)
}

func (r *reader) fail(what string) {
	if r.ok() {
		r.miss = what
	}
}

// bytes returns the next n bytes, which alias the message.
func (r *reader) bytes(n uint32, what string) []byte {
	if !r.ok() {
		return nil
	}
	if uint64(n) > uint64(len(r.msg)-r.off) {
		r.fail(what + " is cut short")
		return nil
	}
	b := r.msg[r.off : r.off+int(n)]
	r.off += int(n)
	return b
}

func (r *reader) byte(what string) byte {
	if b := r.bytes(1, what); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) uint16(what string) uint16 {
	if b := r.bytes(2, what); b != nil {
		return binary.BigEndian.Uint16(b)
	}
	return 0
}

func (r *reader) uint32(what string) uint32 {
	if b := r.bytes(4, what); b != nil {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

func (r *reader) uint64(what string) uint64 {
	if b := r.bytes(8, what); b != nil {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

// string returns the bytes up to the next NUL, which alias the message.
func (r *reader) string(what string) []byte {
	if !r.ok() {
		return nil
	}
	n := bytes.IndexByte(r.msg[r.off:], 0)
	if n < 0 {
		r.fail(what + " has no end")
		return nil
	}
	s := r.msg[r.off : r.off+n]
	r.off += n + 1
	return s
}

// end checks that nothing is left.
func (r *reader) end() {
	if r.ok() && r.off != len(r.msg) {
		r.fail(surplus)
	}
}

const surplus = "bytes behind the end of the message"
