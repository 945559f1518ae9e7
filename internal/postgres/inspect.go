package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"walrelay/checkpoint"
	"walrelay/decoder"
	"walrelay/outbox"
)

// oldest is the oldest server whose pgoutput has everything that the session relies on.
const oldest = 140000

// Outbox is the table that a relay publishes, and what becomes of its rows.
type Outbox struct {
	Database *pgx.ConnConfig
	Table    outbox.Table
	Columns  outbox.Columns
	After    checkpoint.AfterPublish
}

// NewOutbox reads where the table is. It opens nothing.
func NewOutbox(database string, cfg outbox.Config, after checkpoint.AfterPublish, dial DialFunc) (Outbox, error) {
	db, err := ParseDatabase(database, dial)
	if err != nil {
		return Outbox{}, err
	}
	table, err := outbox.ParseTable(cfg.Table)
	if err != nil {
		return Outbox{}, fmt.Errorf("OUTBOX_TABLE: %w", err)
	}
	return Outbox{Database: db, Table: table, Columns: cfg.Columns, After: after}, nil
}

// DatabaseName is the name of the database that DATABASE_URL leads to.
func (o *Outbox) DatabaseName() string {
	if o.Database.Database != "" {
		return o.Database.Database
	}
	return o.Database.User // as PostgreSQL does
}

// Server is what one look at the server and the table says, before anything is changed.
type Server struct {
	Version  int    // server_version_num
	Database string // current_database()
	WALLevel string
	TableOID uint32
	Columns  []decoder.Column
	HasMark  bool // the table has the published_at column
}

// Inspect reads what must be true of the server and the table, and refuses what is not, with
// the command that mends it.
func (o *Outbox) Inspect(ctx context.Context, conn *pgx.Conn) (Server, error) {
	ctx, done := Limited(ctx)
	defer done()
	var v Server
	var recovery bool
	var oid *uint32
	var can rights
	var indexed *bool
	err := conn.QueryRow(ctx, `/* walrelay:server */
SELECT current_setting('server_version_num')::int, current_database()::text, pg_is_in_recovery(), current_setting('wal_level'), t.oid,
       has_table_privilege(t.oid, 'SELECT'), EXISTS (SELECT 1 FROM pg_attribute a WHERE a.attrelid = t.oid AND a.attname = $4
               AND has_column_privilege(t.oid, a.attnum, 'UPDATE')),
       has_any_column_privilege(t.oid, 'UPDATE'), has_table_privilege(t.oid, 'DELETE'),
       EXISTS (SELECT 1 FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
               WHERE i.indrelid = t.oid AND i.indisvalid AND i.indpred IS NULL AND a.attname IN ($2, $3))
FROM (SELECT to_regclass($1)::oid AS oid) t`, o.Table.SQL(), o.Columns.ID, o.Columns.EventID, o.Columns.PublishedAt).
		Scan(&v.Version, &v.Database, &recovery, &v.WALLevel, &oid, &can.read, &can.mark, &can.lock, &can.delete, &indexed)
	if Refused(err) {
		return v, &FatalError{ // to_regclass is what asks for a right
			Reason: fmt.Sprintf("role %q may not use schema %q", o.Database.User, o.Table.Schema),
			Remedy: fmt.Sprintf("GRANT USAGE ON SCHEMA %s TO %s", pgx.Identifier{o.Table.Schema}.Sanitize(), pgx.Identifier{o.Database.User}.Sanitize()),
			Err:    err,
		}
	}
	if err != nil {
		return v, fmt.Errorf("look at the server: %w", err)
	}
	switch {
	case v.Version < oldest:
		return v, &FatalError{
			Reason: fmt.Sprintf("PostgreSQL %d is too old", v.Version/10000),
			Remedy: "walrelay needs PostgreSQL 14 or later",
		}
	case oid == nil:
		return v, &FatalError{
			Reason: fmt.Sprintf("table %s does not exist in database %q", o.Table, v.Database),
			Remedy: "run walrelay migrate up, or name your table in OUTBOX_TABLE",
		}
	case recovery:
		return v, errors.New("the server is a standby: rows cannot be settled there; waiting for a primary (list it in DATABASE_URL with target_session_attrs=read-write)")
	}
	v.TableOID = *oid
	if v.Columns, err = readColumns(ctx, conn, v.TableOID); err != nil {
		return v, err
	}
	for _, c := range v.Columns {
		v.HasMark = v.HasMark || c.Name == o.Columns.PublishedAt
	}
	if err := decoder.CheckShape(o.Table, o.Columns, v.Columns); err != nil {
		return v, &FatalError{Reason: err.Error()}
	}
	if o.After != checkpoint.Keep && !v.uuidEvents(o.Columns.EventID) {
		return v, &FatalError{
			Reason: fmt.Sprintf("column %q of table %s is not of type uuid: rows are settled by it", o.Columns.EventID, o.Table),
			Remedy: fmt.Sprintf("ALTER TABLE %s ALTER COLUMN %s TYPE uuid USING %s::uuid", o.Table.SQL(),
				pgx.Identifier{o.Columns.EventID}.Sanitize(), pgx.Identifier{o.Columns.EventID}.Sanitize()),
		}
	}
	if o.After != checkpoint.Keep && !*indexed {
		return v, &FatalError{
			Reason: fmt.Sprintf("table %s has no index that starts with %s or %s: settling a row would read the whole table", o.Table, o.Columns.ID, o.Columns.EventID),
			Remedy: fmt.Sprintf("CREATE UNIQUE INDEX CONCURRENTLY ON %s (%s)", o.Table.SQL(), pgx.Identifier{o.Columns.ID}.Sanitize()),
		}
	}
	return v, o.checkSettle(v, can)
}

func (v Server) uuidEvents(column string) bool {
	return slices.Contains(v.Columns, decoder.Column{Name: column, TypeOID: pgtype.UUIDOID})
}

// rights are what the relay's role may do with the table; nil where there is no table.
type rights struct {
	read   *bool
	mark   *bool // update the published_at column
	lock   *bool // update any column, which is what FOR UPDATE asks for
	delete *bool
}

// checkSettle refuses a table that this relay could publish but not settle.
func (o *Outbox) checkSettle(v Server, can rights) error {
	if o.After == checkpoint.Mark && !v.HasMark {
		return &FatalError{
			Reason: fmt.Sprintf("table %s has no column %q to mark rows with", o.Table, o.Columns.PublishedAt),
			Remedy: "add it, name yours in OUTBOX_COLUMN_PUBLISHED_AT, or set RELAY_AFTER_PUBLISH=delete",
		}
	}
	update := "UPDATE"
	if v.HasMark {
		update = fmt.Sprintf("UPDATE (%s)", pgx.Identifier{o.Columns.PublishedAt}.Sanitize())
	}
	switch {
	case o.After == checkpoint.Keep:
		return nil
	case !*can.read:
		return o.Grant("SELECT", nil)
	case o.After == checkpoint.Mark && !*can.mark, !*can.lock:
		return o.Grant(update, nil)
	case o.After == checkpoint.Delete && !*can.delete:
		return o.Grant("DELETE", nil)
	}
	return nil
}

// Grant is the error of a role that lacks a right on the table.
func (o *Outbox) Grant(right string, err error) error {
	return &FatalError{
		Reason: fmt.Sprintf("role %q may not %s on table %s", o.Database.User, right, o.Table),
		Remedy: fmt.Sprintf("GRANT %s ON %s TO %s", right, o.Table.SQL(), pgx.Identifier{o.Database.User}.Sanitize()),
		Err:    err,
	}
}

func readColumns(ctx context.Context, conn *pgx.Conn, table uint32) ([]decoder.Column, error) {
	rows, err := conn.Query(ctx, `/* walrelay:columns */
SELECT a.attname::text, CASE WHEN t.typtype = 'd' THEN t.typbasetype ELSE t.oid END
FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
WHERE a.attrelid = $1 AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum`, table)
	if err != nil {
		return nil, fmt.Errorf("read the table's columns: %w", err)
	}
	columns, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (c decoder.Column, err error) {
		err = row.Scan(&c.Name, &c.TypeOID)
		return c, err
	})
	if err != nil {
		return nil, fmt.Errorf("read the table's columns: %w", err)
	}
	return columns, nil
}
