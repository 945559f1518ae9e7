package decoder

import (
	"bytes"
	"encoding/binary"
	"math"
	"time"
)

// postgresEpoch is 2000-01-01 00:00:00 UTC, in seconds since 1970: PostgreSQL counts from there.
const postgresEpoch = 946_684_800

// fromMicroseconds converts a TimestampTz.
func fromMicroseconds(us int64) time.Time {
	return time.Unix(postgresEpoch+us/1e6, us%1e6*1e3).UTC()
}

// binaryTimestamp reads what timestamp_send and timestamptz_send write. Infinity is no time that an
// event can have happened at, and reads as none.
func binaryTimestamp(b []byte) (time.Time, error) {
	if len(b) != 8 {
		return time.Time{}, errWidth
	}
	us := int64(binary.BigEndian.Uint64(b))
	if us == math.MaxInt64 || us == math.MinInt64 {
		return time.Time{}, nil
	}
	return fromMicroseconds(us), nil
}

// parseTimestamp reads the ISO form, 2026-11-30 10:00:00[.123456]+00[:30[:15]][ BC], or infinity. zoned
// is whether an offset must be there; without one it is UTC.
func parseTimestamp(text []byte, zoned bool) (time.Time, error) {
	if string(text) == "infinity" || string(text) == "-infinity" {
		return time.Time{}, nil
	}
	s := scanner{text: text}
	year := s.digits(4, 6)
	s.char('-')
	month := s.digits(2, 2)
	s.char('-')
	day := s.digits(2, 2)
	s.char(' ')
	hour := s.digits(2, 2)
	s.char(':')
	minute := s.digits(2, 2)
	s.char(':')
	second := s.digits(2, 2)
	microsecond := s.fraction()
	offset := 0
	if zoned {
		offset = s.offset()
	}
	if bytes.Equal(s.text, []byte(" BC")) {
		s.text = nil
		year = 1 - year
	}
	if s.bad || len(s.text) > 0 || month < 1 || month > 12 || day < 1 || day > 31 || hour > 23 || minute > 59 || second > 59 {
		return time.Time{}, errTimestamp
	}
	at := time.Date(year, time.Month(month), day, hour, minute, second, microsecond*1000, time.UTC)
	if at.Day() != day {
		return time.Time{}, errTimestamp
	}
	return at.Add(-time.Duration(offset) * time.Second), nil
}

// scanner reads a timestamp from the left. Once something does not fit it is bad for good.
type scanner struct {
	text []byte
	bad  bool
}

// digits reads a number of at least min and at most max digits.
func (s *scanner) digits(min, max int) int {
	n, v := 0, 0
	for n < len(s.text) && n < max && s.text[n] >= '0' && s.text[n] <= '9' {
		v = v*10 + int(s.text[n]-'0')
		n++
	}
	s.text = s.text[n:]
	s.bad = s.bad || n < min
	return v
}

// has consumes c if it is next.
func (s *scanner) has(c byte) bool {
	if len(s.text) == 0 || s.text[0] != c {
		return false
	}
	s.text = s.text[1:]
	return true
}

func (s *scanner) char(c byte) {
	if !s.has(c) {
		s.bad = true
	}
}

// fraction reads up to six digits behind a point, as microseconds.
func (s *scanner) fraction() int {
	if !s.has('.') {
		return 0
	}
	before := len(s.text)
	v := s.digits(1, 6)
	for n := before - len(s.text); n < 6; n++ {
		v *= 10
	}
	return v
}

// offset reads +HH[:MM[:SS]], in seconds east of Greenwich.
func (s *scanner) offset() int {
	west := s.has('-')
	if !west {
		s.char('+')
	}
	v := s.digits(2, 2) * 3600
	if s.has(':') {
		v += s.digits(2, 2) * 60
	}
	if s.has(':') {
		v += s.digits(2, 2)
	}
	if west {
		return -v
	}
	return v
}
