package outbox

import (
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// Config names the table and its columns.
type Config struct {
	Table   string  `env:"OUTBOX_TABLE" envDefault:"public.outbox" doc:"The outbox table, as schema.table; one table per relay."`
	Columns Columns `envPrefix:"OUTBOX_COLUMN_"`
}

// Columns are the names of the table's columns. The optional ones may be missing from the table.
type Columns struct {
	ID            string `env:"ID" envDefault:"id" doc:"Row id: bigint, unique; rows are settled by it."`
	EventID       string `env:"EVENT_ID" envDefault:"event_id" doc:"Event id: uuid, unique; consumers recognise an event by it."`
	AggregateType string `env:"AGGREGATE_TYPE" envDefault:"aggregate_type" doc:"Aggregate type: text."`
	AggregateID   string `env:"AGGREGATE_ID" envDefault:"aggregate_id" doc:"Aggregate id: text, uuid or bigint; the record key where there is no partition key."`
	EventType     string `env:"EVENT_TYPE" envDefault:"event_type" doc:"Event type: text."`
	Payload       string `env:"PAYLOAD" envDefault:"payload" doc:"Payload: jsonb, json, text or bytea; NULL is a tombstone."`
	Headers       string `env:"HEADERS" envDefault:"headers" doc:"Headers: a jsonb or json object (optional)."`
	Topic         string `env:"TOPIC" envDefault:"topic" doc:"Topic chosen by the writer: text, may be NULL (optional)."`
	PartitionKey  string `env:"PARTITION_KEY" envDefault:"partition_key" doc:"Record key: text; the aggregate id where NULL (optional)."`
	CreatedAt     string `env:"CREATED_AT" envDefault:"created_at" doc:"When the event happened: timestamptz (optional)."`
	PublishedAt   string `env:"PUBLISHED_AT" envDefault:"published_at" doc:"When the event was published: timestamptz; set by RELAY_AFTER_PUBLISH=mark."`
}

// Table is a schema-qualified table name, unquoted.
type Table struct{ Schema, Name string }

// ParseTable reads schema.table; without a schema it is public. Names are taken as they are written,
// upper case included; they are not SQL and need no quotes.
func ParseTable(s string) (Table, error) {
	schema, name, found := strings.Cut(s, ".")
	if !found {
		schema, name = "public", s
	}
	if schema == "" || name == "" || strings.ContainsAny(s, "\"\x00") || strings.Contains(name, ".") {
		return Table{}, fmt.Errorf("%q is not a table name: write schema.table, without quotes", s)
	}
	if len(schema) > 63 || len(name) > 63 {
		return Table{}, errors.New("a table or schema name is at most 63 bytes long")
	}
	return Table{schema, name}, nil
}

// SQL is the name quoted for use in a statement.
func (t Table) SQL() string { return pgx.Identifier{t.Schema, t.Name}.Sanitize() }

func (t Table) String() string { return t.Schema + "." + t.Name }
