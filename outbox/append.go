package outbox

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/caarlos0/env/v11"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Draft is an event to be written. The row id and the time are the table's to give.
type Draft struct {
	ID                                    EventID // a new one where zero
	AggregateType, AggregateID, EventType string  // required
	// Payload nil is NULL, a tombstone. A string or json.RawMessage is written as it is, and so is []byte,
	// which is for a bytea column: pgx's simple protocol makes bytea text of it, which a jsonb column refuses
	// and a text column keeps. Everything else is marshalled to JSON.
	Payload      any
	Headers      map[string]string
	PartitionKey string // the aggregate id is the record's key where this is empty
	Topic        string // the relay chooses the topic where this is empty
}

// Appender writes events to the outbox table. It has no connection of its own: an event is written in the
// transaction of the changes that it tells of, and is committed with them or not at all. An Appender is
// safe for concurrent use.
type Appender struct {
	table   Table
	columns Columns
}

// PgxTx is what Append needs of a pgx.Tx.
type PgxTx interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// SQLTx is what AppendSQL needs of an *sql.Tx.
type SQLTx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// NewAppender makes an Appender for the table and columns that the relay reads. What cfg leaves empty has
// its default.
func NewAppender(cfg Config) (*Appender, error) {
	defaults := env.Options{Environment: map[string]string{}, SetDefaultsForZeroValuesOnly: true}
	if err := env.ParseWithOptions(&cfg, defaults); err != nil {
		return nil, err
	}
	table, err := ParseTable(cfg.Table)
	if err != nil {
		return nil, err
	}
	return &Appender{table, cfg.Columns}, nil
}

// Append writes one event in the caller's transaction and returns its id. The relay publishes in commit
// order: lock the aggregate before you append, and its events keep their order when it polls, too.
func (a *Appender) Append(ctx context.Context, tx PgxTx, d Draft) (EventID, error) {
	return a.append(d, func(query string, args []any) error {
		_, err := tx.Exec(ctx, query, args...)
		return err
	})
}

// AppendSQL is Append for database/sql.
func (a *Appender) AppendSQL(ctx context.Context, tx SQLTx, d Draft) (EventID, error) {
	return a.append(d, func(query string, args []any) error {
		_, err := tx.ExecContext(ctx, query, args...)
		return err
	})
}

func (a *Appender) append(d Draft, exec func(query string, args []any) error) (EventID, error) {
	if d.ID == (EventID{}) {
		d.ID = newEventID(time.Now())
	}
	query, args, err := a.insert(d)
	if err == nil {
		err = exec(query, args)
	}
	if err != nil {
		return EventID{}, fmt.Errorf("append event %q: %w", d.EventType, err)
	}
	return d.ID, nil
}

// insert names the optional columns only where the draft fills them: a table may be without them.
func (a *Appender) insert(d Draft) (query string, args []any, err error) {
	if d.AggregateType == "" || d.AggregateID == "" || d.EventType == "" {
		return "", nil, errors.New("aggregate type, aggregate id and event type are required")
	}
	payload, err := column(d.Payload)
	if err != nil {
		return "", nil, fmt.Errorf("marshal payload: %w", err)
	}
	var columns, params []string
	set := func(name string, value any) {
		args = append(args, value)
		columns = append(columns, pgx.Identifier{name}.Sanitize())
		params = append(params, fmt.Sprintf("$%d", len(args)))
	}
	set(a.columns.EventID, d.ID.String())
	set(a.columns.AggregateType, d.AggregateType)
	set(a.columns.AggregateID, d.AggregateID)
	set(a.columns.EventType, d.EventType)
	set(a.columns.Payload, payload)
	if len(d.Headers) > 0 {
		headers, _ := json.Marshal(d.Headers) // a map of strings cannot fail
		set(a.columns.Headers, string(headers))
	}
	if d.PartitionKey != "" {
		set(a.columns.PartitionKey, d.PartitionKey)
	}
	if d.Topic != "" {
		set(a.columns.Topic, d.Topic)
	}
	return fmt.Sprintf("INSERT INTO %s (%s) VALUES (%s)",
		a.table.SQL(), strings.Join(columns, ", "), strings.Join(params, ", ")), args, nil
}

// column gives JSON as a string: every driver writes that unchanged into json, jsonb and text columns.
func column(v any) (any, error) {
	switch v := v.(type) {
	case nil, string, []byte:
		return v, nil
	case json.RawMessage:
		if v == nil {
			return nil, nil
		}
		return string(v), nil
	}
	text, err := json.Marshal(v)
	return string(text), err
}
