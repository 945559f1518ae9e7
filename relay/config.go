package relay

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"walrelay/checkpoint"
)

// Config is what an operator can set about the relay as a whole.
type Config struct {
	AfterPublish    checkpoint.AfterPublish `env:"RELAY_AFTER_PUBLISH" envDefault:"mark" doc:"What happens to a row that Kafka has acknowledged: mark (set published_at), delete, or keep (write nothing)."`
	MemoryLimit     Bytes                   `env:"RELAY_MEMORY_LIMIT" envDefault:"64MiB" doc:"Memory that the process aims to stay under; from 32MiB."`
	ShutdownTimeout time.Duration           `env:"RELAY_SHUTDOWN_TIMEOUT" envDefault:"10s" doc:"How long a stopping relay waits for Kafka to acknowledge what is in flight, 0s to 5m."`
}

// Validate reports every setting that cannot work, by the name of its variable.
func (c Config) Validate() []error {
	var errs []error
	if !c.AfterPublish.Valid() {
		errs = append(errs, fmt.Errorf("RELAY_AFTER_PUBLISH: %q is unknown: use mark, delete or keep", c.AfterPublish))
	}
	if c.MemoryLimit < 32<<20 {
		errs = append(errs, fmt.Errorf("RELAY_MEMORY_LIMIT: %v is too little: use 32MiB or more", c.MemoryLimit))
	}
	if c.ShutdownTimeout < 0 || c.ShutdownTimeout > 5*time.Minute {
		errs = append(errs, fmt.Errorf("RELAY_SHUTDOWN_TIMEOUT: %v is out of range: 0s to 5m", c.ShutdownTimeout))
	}
	return errs
}

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
