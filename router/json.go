package router

import (
	"unicode/utf16"
	"unicode/utf8"
)

// maxDepth is how deep arrays and objects may be nested, as in encoding/json. PostgreSQL's default
// max_stack_depth stops earlier.
const maxDepth = 10_000

// object reads a JSON text from front to back; at is the next byte. It is our own because encoding/json
// can give a value's text as it stands, or strings without a copy, but not both and not without allocating.
type object struct {
	text []byte
	at   int
}

// fault names the place and not the text, which may be a secret.
func (o *object) fault() error {
	return unroutable("headers column is not valid JSON at byte %d", o.at)
}

// end is called behind the last token: nothing but white space may follow.
func (o *object) end() error {
	if o.skipSpace(); o.at < len(o.text) {
		return o.fault()
	}
	return nil
}

// next is the next byte, 0 at the end: no JSON token begins with a zero byte.
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

func (o *object) takeLiteral(s string) bool {
	if end := o.at + len(s); end <= len(o.text) && string(o.text[o.at:end]) == s {
		o.at = end
		return true
	}
	return false
}

func (o *object) skipSpace() {
	for {
		switch o.next() {
		case ' ', '\t', '\r', '\n':
			o.at++
		default:
			return
		}
	}
}

// skipValue passes over one value, which would be at this level of nesting if it were an array.
func (o *object) skipValue(level int) bool {
	switch o.next() {
	case '{':
		return o.skipList(level, '}')
	case '[':
		return o.skipList(level, ']')
	case '"':
		return o.skipString()
	case 't':
		return o.takeLiteral("true")
	case 'f':
		return o.takeLiteral("false")
	case 'n':
		return o.takeLiteral("null")
	}
	return o.skipNumber()
}

// skipList passes over an array or an object, whichever ends with the given bracket.
func (o *object) skipList(level int, closing byte) bool {
	if level > maxDepth {
		return false
	}
	o.at++
	o.skipSpace()
	if o.take(closing) {
		return true
	}
	for {
		if closing == '}' {
			if !o.skipString() {
				return false
			}
			o.skipSpace()
			if !o.take(':') {
				return false
			}
			o.skipSpace()
		}
		if !o.skipValue(level + 1) {
			return false
		}
		o.skipSpace()
		if o.take(closing) {
			return true
		}
		if !o.take(',') {
			return false
		}
		o.skipSpace()
	}
}

func (o *object) skipNumber() bool {
	o.take('-')
	if !o.take('0') && !o.skipDigits() {
		return false
	}
	if o.take('.') && !o.skipDigits() {
		return false
	}
	if o.take('e') || o.take('E') {
		_ = o.take('+') || o.take('-')
		return o.skipDigits()
	}
	return true
}

// skipDigits passes over one digit at least.
func (o *object) skipDigits() bool {
	start := o.at
	for c := o.next(); '0' <= c && c <= '9'; c = o.next() {
		o.at++
	}
	return o.at > start
}

func (o *object) skipString() bool {
	if !o.take('"') {
		return false
	}
	for o.at < len(o.text) {
		switch c := o.text[o.at]; {
		case c == '"':
			o.at++
			return true
		case c < ' ':
			return false
		case c == '\\':
			if _, ok := o.takeEscape(); !ok {
				return false
			}
		default:
			o.at++
		}
	}
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
			r, ok := o.takeEscape()
			if !ok {
				return dst, false
			}
			dst = utf8.AppendRune(dst, r)
			run = o.at
		default:
			o.at++
		}
	}
	return dst, false
}

// takeEscape takes one escape, two in the case of a surrogate pair.
func (o *object) takeEscape() (rune, bool) {
	o.at++
	c := o.next()
	o.at++
	switch c {
	case '"', '\\', '/':
		return rune(c), true
	case 'b':
		return '\b', true
	case 'f':
		return '\f', true
	case 'n':
		return '\n', true
	case 'r':
		return '\r', true
	case 't':
		return '\t', true
	case 'u':
		return o.takeUnicode()
	}
	o.at--
	return 0, false
}

// takeUnicode stands behind \u. Half of a surrogate pair is U+FFFD.
func (o *object) takeUnicode() (rune, bool) {
	first, ok := hex4(o.text[o.at:])
	if !ok {
		return 0, false
	}
	o.at += 4
	if !utf16.IsSurrogate(first) {
		return first, true
	}
	if !o.takeLiteral(`\u`) {
		return utf8.RuneError, true
	}
	if second, ok := hex4(o.text[o.at:]); ok {
		if pair := utf16.DecodeRune(first, second); pair != utf8.RuneError {
			o.at += 4
			return pair, true
		}
	}
	o.at -= len(`\u`) // an escape of its own, good or bad
	return utf8.RuneError, true
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
