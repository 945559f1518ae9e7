package polling

import (
	"fmt"
	"time"

	"walrelay/internal/size"
)

// Notify says how a source that polls is woken between two polls.
type Notify string

const (
	Auto Notify = "auto" // by NOTIFY where the table's trigger sends it
	On   Notify = "on"   // by NOTIFY, or not at all
	Off  Notify = "off"  // by the interval alone
)

// Config is what an operator can set about polling. It is of no meaning to RELAY_MODE=wal.
type Config struct {
	Interval   time.Duration `env:"POLLING_INTERVAL" envDefault:"500ms" doc:"How often the table is asked for new rows while it has none, 10ms to 1m. With NOTIFY it is what remains when a notification is lost."`
	BatchRows  int           `env:"POLLING_BATCH_ROWS" envDefault:"2000" doc:"Most rows that are read at once, 1 to 10000."`
	BatchBytes size.Bytes    `env:"POLLING_BATCH_BYTES" envDefault:"4MiB" doc:"Most bytes that are read at once, 64KiB to 64MiB; one row may have more."`
	Notify     Notify        `env:"POLLING_NOTIFY" envDefault:"auto" doc:"Whether NOTIFY wakes the relay as soon as rows are committed: auto (where the table's trigger is enabled), on (required) or off."`
}

// Validate reports every setting that cannot work, by the name of its variable.
func (c Config) Validate() []error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.Interval < 10*time.Millisecond || c.Interval > time.Minute {
		bad("POLLING_INTERVAL: %v is out of range: 10ms to 1m", c.Interval)
	}
	if c.BatchRows < 1 || c.BatchRows > 10_000 {
		bad("POLLING_BATCH_ROWS: %d is out of range: 1 to 10000", c.BatchRows)
	}
	if c.BatchBytes < 64<<10 || c.BatchBytes > 64<<20 {
		bad("POLLING_BATCH_BYTES: %v is out of range: 64KiB to 64MiB", c.BatchBytes)
	}
	switch c.Notify {
	case Auto, On, Off:
	default:
		bad("POLLING_NOTIFY: %q is unknown: use auto, on or off", c.Notify)
	}
	return errs
}
