package router

import (
	"bytes"
	"encoding/json"
	"unicode/utf16"
	"unicode/utf8"
)

// readHeaders adds one header for every entry of the JSON object in text, in its order, repeated keys
// included (a json column keeps them).
//
// A string's value is what the string stands for, byte for byte. null is a null value. Anything else is
// its JSON text as it stands, white space inside included. Half of a surrogate pair, which only a json column can
// hold, is U+FFFD. A column that holds NULL or a JSON null has no headers; one that holds anything else
// than an object is *Unroutable, and so is one with more than 1,000 entries.
//
// PostgreSQL has checked the text of a json column, so this reader is not the judge of what JSON is; but
// it never panics, and never makes a header out of what is not JSON.
func (rec *Record) readHeaders(text []byte) error {
	if text == nil {
		return nil
	}
	o := object{text: text}
	o.skipSpace()
	if !o.take('{') {
		if string(bytes.Trim(text, jsonSpace)) == "null" {
			return nil
		}
		return unroutable("headers column is not a JSON object: write an object like {\"traceparent\": \"…\"}, or NULL")
	}
	o.skipSpace()
	if o.take('}') {
		return o.end()
	}
	for entries := 1; ; entries++ {
		if entries > maxHeaders {
			return unroutable("headers column has more than %d entries", maxHeaders)
		}
		if err := rec.readEntry(&o); err != nil {
			return err
		}
		o.skipSpace()
		if o.take('}') {
			return o.end()
		}
		if !o.take(',') {
			return o.fault()
		}
		o.skipSpace()
	}
}

// readEntry adds the header of one `"key": value`.
func (rec *Record) readEntry(o *object) error {
	start := len(rec.buf)
	var ok bool
	if rec.buf, ok = o.appendString(rec.buf); !ok {
		return o.fault()
	}
	key := rec.sinceString(start)
	o.skipSpace()
	if !o.take(':') {
		return o.fault()
	}
	o.skipSpace()
	if o.next() == '"' {
		start = len(rec.buf)
		if rec.buf, ok = o.appendString(rec.buf); !ok {
			return o.fault()
		}
		rec.add(key, rec.since(start))
		return nil
	}
	value, ok := o.takeRaw()
	if !ok {
		return o.fault()
	}
	if string(value) == "null" {
		rec.add(key, nil)
		return nil
	}
	rec.add(key, rec.copied(value))
	return nil
}

const jsonSpace = " \t\r\n"

// object reads a JSON text from front to back; at is the next byte.
type object struct {
	text []byte
	at   int
}

// fault names the place and not the text, which may be a secret.
func (o *object) fault() error {
	return unroutable("headers column is not valid JSON at byte %d", o.at)
}

// end is called behind the object's last brace: nothing but white space may follow.
func (o *object) end() error {
	if o.skipSpace(); o.at < len(o.text) {
		return o.fault()
	}
	return nil
}

// next is the next byte, 0 at the end: no JSON value begins with a zero byte.
func (o *object) next() byte {
	if o.at < len(o.text) {
		return o.text[o.at]
	}
	return 0
}

func (o *object) take(c byte) bool {
	if o.next() != c {
		return false
	}
	o.at++
	return true
}

func (o *object) skipSpace() {
	for o.at < len(o.text) {
		switch o.text[o.at] {
		case ' ', '\t', '\r', '\n':
			o.at++
		default:
			return
		}
	}
}

// takeRaw takes a number, a literal, an array or an object as it stands. It finds the end by counting
// brackets and leaves the judgement to encoding/json, which keeps no state per call.
func (o *object) takeRaw() ([]byte, bool) {
	start, depth := o.at, 0
	for ; o.at < len(o.text); o.at++ {
		switch c := o.text[o.at]; c {
		case '"':
			if !o.skipString() {
				return nil, false
			}
			o.at--
		case '{', '[':
			depth++
		case '}', ']', ',', ' ', '\t', '\r', '\n':
			if depth == 0 {
				value := o.text[start:o.at]
				return value, json.Valid(value)
			}
			if c == '}' || c == ']' {
				depth--
			}
		}
	}
	return nil, false
}

// skipString passes over a string without looking into it.
func (o *object) skipString() bool {
	for o.at++; o.at < len(o.text); o.at++ {
		switch o.text[o.at] {
		case '\\':
			o.at++
		case '"':
			o.at++
			return true
		}
	}
	o.at = len(o.text)
	return false
}

// appendString takes a string and appends what it stands for, never more bytes than it took. Bytes that
// are not UTF-8 (a database with encoding SQL_ASCII) pass as they are.
func (o *object) appendString(dst []byte) ([]byte, bool) {
	if !o.take('"') {
		return dst, false
	}
	run := o.at // start of what has not been appended yet
	for o.at < len(o.text) {
		switch c := o.text[o.at]; {
		case c == '"':
			dst = append(dst, o.text[run:o.at]...)
			o.at++
			return dst, true
		case c < ' ':
			return dst, false
		case c == '\\':
			dst = append(dst, o.text[run:o.at]...)
			var ok bool
			if dst, ok = o.appendEscape(dst); !ok {
				return dst, false
			}
			run = o.at
		default:
			o.at++
		}
	}
	return dst, false
}

// appendEscape takes one escape, two in the case of a surrogate pair.
func (o *object) appendEscape(dst []byte) ([]byte, bool) {
	o.at++
	c := o.next()
	o.at++
	switch c {
	case '"', '\\', '/':
		return append(dst, c), true
	case 'b':
		return append(dst, '\b'), true
	case 'f':
		return append(dst, '\f'), true
	case 'n':
		return append(dst, '\n'), true
	case 'r':
		return append(dst, '\r'), true
	case 't':
		return append(dst, '\t'), true
	case 'u':
		return o.appendUnicode(dst)
	}
	o.at--
	return dst, false
}

// appendUnicode stands behind \u.
func (o *object) appendUnicode(dst []byte) ([]byte, bool) {
	c, ok := hex4(o.text[min(o.at, len(o.text)):])
	if !ok {
		return dst, false
	}
	o.at += 4
	if !utf16.IsSurrogate(c) {
		return utf8.AppendRune(dst, c), true
	}
	rest := o.text[o.at:]
	if len(rest) >= 6 && rest[0] == '\\' && rest[1] == 'u' {
		if low, ok := hex4(rest[2:]); ok {
			if pair := utf16.DecodeRune(c, low); pair != utf8.RuneError {
				o.at += 6
				return utf8.AppendRune(dst, pair), true
			}
		}
	}
	return utf8.AppendRune(dst, utf8.RuneError), true
}

func hex4(b []byte) (rune, bool) {
	if len(b) < 4 {
		return 0, false
	}
	var v rune
	for _, c := range b[:4] {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		v = v<<4 | rune(c)
	}
	return v, true
}
