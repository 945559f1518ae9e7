// Package size is how settings spell an amount of memory.
package size

import (
	"fmt"
	"strconv"
	"strings"
)

// Bytes is a size, read and printed with a binary unit: 64MiB, 1GiB, 4096.
type Bytes int64

var units = []struct {
	name string
	size Bytes
}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}}

// UnmarshalText reads a whole number with an optional unit (B, KiB, MiB, GiB, TiB).
func (b *Bytes) UnmarshalText(text []byte) error {
	s, unit := string(text), Bytes(1)
	for _, u := range units {
		if rest, ok := strings.CutSuffix(s, u.name); ok {
			s, unit = strings.TrimSpace(rest), u.size
			break
		}
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 || n > int64((1<<62)/unit) {
		return fmt.Errorf("%q is not a size: write a whole number and a unit, such as 64MiB or 1GiB", text)
	}
	*b = Bytes(n) * unit
	return nil
}

func (b Bytes) String() string {
	for _, u := range units {
		if b >= u.size && b%u.size == 0 {
			return strconv.FormatInt(int64(b/u.size), 10) + u.name
		}
	}
	return strconv.FormatInt(int64(b), 10) + "B"
}

// MarshalText is the inverse of UnmarshalText.
func (b Bytes) MarshalText() ([]byte, error) { return []byte(b.String()), nil }
