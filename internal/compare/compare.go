// Package compare measures one load through each way of finding committed rows: the write-ahead log,
// polling, and polling that NOTIFY wakes. Each has a table, a topic, and where it needs them a slot
// and a publication of its own, which are made for it and dropped behind it. The relay is a process of
// its own, so that what it takes of the machine is its own.
package compare

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"walrelay/internal/usage"
)

// Options are what is measured, and where.
type Options struct {
	Database string    // DATABASE_URL, of a user who may create tables
	Brokers  string    // KAFKA_BROKERS
	Kafka    []kgo.Opt // how the consumer connects
	Servers  string    // what they are, for the report; empty: PostgreSQL is asked

	Rate    int           // events per second
	For     time.Duration // of each mode, without its warm-up
	Payload int           // bytes, about
	PerTx   int           // events of a transaction
	Modes   []string      // of Modes()

	Relay   []string // command of the relay under test; it writes its trace to file descriptor 3
	Environ []string // of the relay, under what is set here
	Say     func(format string, args ...any)
	Status  func(text string) // a line that the next one overwrites
}

const (
	warmUp     = 2 * time.Second
	readyLimit = 30 * time.Second // for the first session of a relay
	lateLimit  = 30 * time.Second // for the last event, when the relay has fallen behind
	dropLimit  = 20 * time.Second // for what a mode leaves
)

// Mode is one way.
type Mode struct {
	Name   string
	what   string   // for people
	env    []string // of the relay
	notify bool     // with the trigger
	slot   bool     // with a slot and a publication
}

// All are the modes, the first being the one that the others are set against.
func All() []Mode {
	return []Mode{
		{Name: "wal", what: "the write-ahead log, by logical replication", env: []string{"RELAY_MODE=wal"}, slot: true},
		{Name: "polling+notify", what: "the table, woken by NOTIFY", env: []string{"RELAY_MODE=polling", "POLLING_NOTIFY=on"}, notify: true},
		{Name: "polling", what: "the table, every POLLING_INTERVAL", env: []string{"RELAY_MODE=polling", "POLLING_NOTIFY=off"}},
	}
}

// Run measures mode after mode. A mode that these servers cannot have is left out and said so; the error
// is what keeps the whole from being measured. Whatever was made is dropped, also when ctx ends.
func Run(ctx context.Context, o Options) (*Report, error) {
	conn, err := pgx.Connect(ctx, o.Database)
	if err != nil {
		return nil, fmt.Errorf("connect to PostgreSQL: %w", err)
	}
	defer func() {
		bound, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		conn.Close(bound)
	}()
	client, err := kgo.NewClient(o.Kafka...)
	if err != nil {
		return nil, fmt.Errorf("make a Kafka client: %w", err)
	}
	defer client.Close()
	if err := client.Ping(ctx); err != nil {
		return nil, fmt.Errorf("reach Kafka at %s: %w", o.Brokers, err)
	}
	schema, server, err := look(ctx, conn)
	if err != nil {
		return nil, err
	}
	if o.Servers == "" {
		o.Servers = server
	}
	r := &Report{
		At: time.Now().UTC().Truncate(time.Second), Machine: usage.Machine(), Servers: o.Servers,
		Rate: o.Rate, Seconds: o.For.Seconds(), Payload: o.Payload, PerTx: o.PerTx,
	}
	id := make([]byte, 4)
	rand.Read(id) // never fails
	base := setup{o: o, conn: conn, admin: kadm.NewClient(client), schema: schema, suffix: hex.EncodeToString(id)}

	o.Say("baseline: the writers alone")
	if r.Baseline, err = base.measure(ctx, nil); err != nil {
		return nil, err
	}
	for _, mode := range All() {
		if !o.has(mode.Name) {
			continue
		}
		o.Say("%s: %s", mode.Name, mode.what)
		result, err := base.measure(ctx, &mode)
		var missing *unavailableError
		switch {
		case errors.As(err, &missing):
			o.Say("%s is left out: %v", mode.Name, missing)
			r.LeftOut = append(r.LeftOut, LeftOut{mode.Name, missing.Error()})
			continue
		case err != nil:
			return nil, fmt.Errorf("%s: %w", mode.Name, err)
		}
		r.Modes = append(r.Modes, result)
	}
	if len(r.Modes) == 0 {
		return r, errors.New("none of the modes could be measured")
	}
	return r, nil
}

func (o Options) has(mode string) bool {
	for _, m := range o.Modes {
		if m == mode {
			return true
		}
	}
	return false
}

// look finds the schema that tables would be made in, and refuses where they may not be.
func look(ctx context.Context, conn *pgx.Conn) (schema, server string, err error) {
	var may *bool
	var found *string
	var user string
	err = conn.QueryRow(ctx, `SELECT current_schema(), has_schema_privilege(current_schema(), 'CREATE'), current_user::text, 'PostgreSQL ' || split_part(current_setting('server_version'), ' ', 1)`).
		Scan(&found, &may, &user, &server)
	switch {
	case err != nil:
		return "", "", fmt.Errorf("look at the database: %w", err)
	case found == nil:
		return "", "", fmt.Errorf("no schema of search_path exists: give DATABASE_URL one, as ?search_path=public")
	case !*may:
		return "", "", fmt.Errorf("role %q may not create tables in schema %q, and compare makes its own: GRANT CREATE ON SCHEMA %s TO %s, or name a user who may in DATABASE_URL",
			user, *found, pgx.Identifier{*found}.Sanitize(), pgx.Identifier{user}.Sanitize())
	}
	return *found, server, nil
}

// unavailableError is a mode that these servers, or this user, cannot have.
type unavailableError struct{ reason string }

func (e *unavailableError) Error() string { return e.reason }
