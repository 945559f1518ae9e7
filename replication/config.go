package replication

import (
	"fmt"
	"regexp"
	"time"
)

// Config is what an operator can set about the slot and its stream.
type Config struct {
	Slot           string        `env:"REPLICATION_SLOT" envDefault:"walrelay" doc:"Logical replication slot; created when missing. Letters a-z, digits and _, at most 63."`
	Publication    string        `env:"REPLICATION_PUBLICATION" envDefault:"walrelay" doc:"Publication of the outbox table; created when missing and allowed."`
	StatusInterval time.Duration `env:"REPLICATION_STATUS_INTERVAL" envDefault:"1s" doc:"How often the confirmed position is told to PostgreSQL, 10ms to 10s. What is not confirmed yet is sent again after a crash."`
	Failover       bool          `env:"REPLICATION_FAILOVER" envDefault:"true" doc:"Create the slot as a failover slot where the server can (PostgreSQL 17 and later)."`
}

// slotName is what PostgreSQL allows (ReplicationSlotValidateName).
var slotName = regexp.MustCompile(`^[a-z0-9_]{1,63}$`)

// Validate reports every setting that cannot work, by the name of its variable.
func (c Config) Validate() []error {
	var errs []error
	if !slotName.MatchString(c.Slot) {
		errs = append(errs, fmt.Errorf("REPLICATION_SLOT: %q is not a slot name: use a-z, 0-9 and _, at most 63 characters", c.Slot))
	}
	if c.Publication == "" || len(c.Publication) > 63 {
		errs = append(errs, fmt.Errorf("REPLICATION_PUBLICATION: %q is not a publication name: use 1 to 63 characters", c.Publication))
	}
	if c.StatusInterval < 10*time.Millisecond || c.StatusInterval > 10*time.Second {
		errs = append(errs, fmt.Errorf("REPLICATION_STATUS_INTERVAL: %v is out of range: 10ms to 10s", c.StatusInterval))
	}
	return errs
}
