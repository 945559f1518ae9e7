package size

import "testing"

func TestBytes(t *testing.T) {
	for _, c := range []struct {
		text string
		want Bytes
		back string
	}{
		{"64MiB", 64 << 20, "64MiB"},
		{"1 GiB", 1 << 30, "1GiB"},
		{"4096", 4096, "4KiB"},
		{"1000B", 1000, "1000B"},
		{"0", 0, "0B"},
	} {
		var b Bytes
		if err := b.UnmarshalText([]byte(c.text)); err != nil || b != c.want || b.String() != c.back {
			t.Errorf("%q: %d, %q, %v", c.text, b, b, err)
		}
	}
	for _, text := range []string{"", "MiB", "-1MiB", "1.5GiB", "64MB", "9999999999TiB", "1 G"} {
		var b Bytes
		if err := b.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q was read as %v", text, b)
		}
	}
}
