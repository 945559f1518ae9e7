package relay

import (
	"errors"
	"fmt"
	"time"

	"walrelay/checkpoint"
	"walrelay/internal/size"
)

// Mode is how committed rows are found.
type Mode string

const (
	WAL     Mode = "wal"
	Polling Mode = "polling"
)

// Config is what an operator can set about the relay as a whole.
type Config struct {
	Mode            Mode                    `env:"RELAY_MODE" envDefault:"wal" doc:"How committed rows are found: wal (the write-ahead log, by logical replication) or polling (by asking the table)."`
	AfterPublish    checkpoint.AfterPublish `env:"RELAY_AFTER_PUBLISH" envDefault:"mark" doc:"What happens to a row that Kafka has acknowledged: mark (set published_at), delete, or keep (write nothing)."`
	Retention       time.Duration           `env:"OUTBOX_RETENTION" envDefault:"0s" doc:"How long a published row stays in the table, from 1h, such as 168h; 0s is for ever. For RELAY_AFTER_PUBLISH=mark; the role needs DELETE."`
	MemoryLimit     size.Bytes              `env:"RELAY_MEMORY_LIMIT" envDefault:"64MiB" doc:"Memory that the process aims to stay under; from 32MiB."`
	ShutdownTimeout time.Duration           `env:"RELAY_SHUTDOWN_TIMEOUT" envDefault:"10s" doc:"How long a stopping relay waits for Kafka to acknowledge what is in flight, 0s to 5m."`
}

// Validate reports every setting that cannot work, by the name of its variable.
func (c Config) Validate() []error {
	var errs []error
	if c.Mode != WAL && c.Mode != Polling {
		errs = append(errs, fmt.Errorf("RELAY_MODE: %q is unknown: use wal or polling", c.Mode))
	}
	if c.Mode == Polling && c.AfterPublish == checkpoint.Keep {
		errs = append(errs, errors.New("RELAY_MODE=polling tells by the table which rows are published, and RELAY_AFTER_PUBLISH=keep writes nothing there: use mark or delete, or RELAY_MODE=wal"))
	}
	if !c.AfterPublish.Valid() {
		errs = append(errs, fmt.Errorf("RELAY_AFTER_PUBLISH: %q is unknown: use mark, delete or keep", c.AfterPublish))
	}
	if c.Retention != 0 && c.Retention < time.Hour {
		errs = append(errs, fmt.Errorf("OUTBOX_RETENTION: %v is out of range: 0s, or 1h and more", c.Retention))
	}
	if c.Retention != 0 && c.AfterPublish != checkpoint.Mark {
		errs = append(errs, errNoRetention)
	}
	if c.MemoryLimit < 32<<20 {
		errs = append(errs, fmt.Errorf("RELAY_MEMORY_LIMIT: %v is too little: use 32MiB or more", c.MemoryLimit))
	}
	if c.ShutdownTimeout < 0 || c.ShutdownTimeout > 5*time.Minute {
		errs = append(errs, fmt.Errorf("RELAY_SHUTDOWN_TIMEOUT: %v is out of range: 0s to 5m", c.ShutdownTimeout))
	}
	return errs
}
