package decoder

import (
	"encoding/binary"
	"math"
	"testing"
	"time"
)

func TestParseTimestamp(t *testing.T) {
	utc := func(year int, month time.Month, day, hour, minute, second, micro int) time.Time {
		return time.Date(year, month, day, hour, minute, second, micro*1000, time.UTC)
	}
	for _, test := range []struct {
		text string
		want time.Time
	}{
		{"2026-11-30 10:00:00+00", utc(2026, 11, 30, 10, 0, 0, 0)},
		{"2026-11-30 10:00:00.5+00", utc(2026, 11, 30, 10, 0, 0, 500000)},
		{"2026-11-30 10:00:00.000001+00", utc(2026, 11, 30, 10, 0, 0, 1)},
		{"2026-11-30 10:00:00.123456-08", utc(2026, 11, 30, 18, 0, 0, 123456)},
		{"2026-11-30 00:00:00+05:45", utc(2026, 11, 29, 18, 15, 0, 0)},
		{"1850-01-01 00:00:00+00:19:32", utc(1849, 12, 31, 23, 40, 28, 0)},
		{"0044-03-15 12:00:00+00 BC", utc(-43, 3, 15, 12, 0, 0, 0)},
		{"0001-12-31 23:59:59+00 BC", utc(0, 12, 31, 23, 59, 59, 0)},
		{"0001-02-29 00:00:00+00 BC", utc(0, 2, 29, 0, 0, 0, 0)}, // 1 BC was a leap year
		{"294276-12-31 23:59:59.999999+00", utc(294276, 12, 31, 23, 59, 59, 999999)},
		{"2024-02-29 23:59:59+00", utc(2024, 2, 29, 23, 59, 59, 0)},
		{"infinity", time.Time{}},
		{"-infinity", time.Time{}},
	} {
		got, err := parseTimestamp([]byte(test.text), true)
		if err != nil || !got.Equal(test.want) || got.Location() != time.UTC {
			t.Errorf("%s: %s, %v, want %s", test.text, got, err, test.want)
		}
	}
	if got, err := parseTimestamp([]byte("2026-11-30 10:00:00.25"), false); err != nil || !got.Equal(utc(2026, 11, 30, 10, 0, 0, 250000)) {
		t.Errorf("timestamp: %s, %v", got, err)
	}
	for _, text := range []string{"", " ", "2026", "2026-11-30", "2026-11-30 10:00:00", "2026-11-30T10:00:00+00", "2026-11-30 10:00:00.+00",
		"2026-11-30 10:00:00.1234567+00", "2026-02-30 10:00:00+00", "2026-13-01 10:00:00+00", "2026-00-01 10:00:00+00", "2026-01-00 10:00:00+00",
		"2026-11-30 24:00:00+00", "2026-11-30 10:60:00+00", "2026-11-30 10:00:60+00", "2026-11-30 10:00:00+0", "2026-11-30 10:00:00+00:",
		"2026-11-30 10:00:00+00 AD", "2026-11-30 10:00:00+00 BC ", "26-11-30 10:00:00+00", "Mon Nov 30 10:00:00 2026 UTC", "infinit", "+infinity"} {
		if got, err := parseTimestamp([]byte(text), true); err == nil {
			t.Errorf("%q reads as %s", text, got)
		}
	}
	if got, err := parseTimestamp([]byte("2026-11-30 10:00:00+00"), false); err == nil {
		t.Errorf("a timestamp with an offset reads as %s", got)
	}
}

func TestBinaryTimestamp(t *testing.T) {
	wire := func(us int64) []byte { return binary.BigEndian.AppendUint64(nil, uint64(us)) }
	for us, want := range map[int64]time.Time{
		0:             time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC),
		-1:            time.Date(1999, 12, 31, 23, 59, 59, 999999000, time.UTC),
		1500000:       time.Date(2000, 1, 1, 0, 0, 1, 500000000, time.UTC),
		math.MaxInt64: {},
		math.MinInt64: {},
	} {
		if got, err := binaryTimestamp(wire(us)); err != nil || !got.Equal(want) {
			t.Errorf("%d: %s, %v, want %s", us, got, err, want)
		}
	}
}
