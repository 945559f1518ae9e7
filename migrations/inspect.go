package migrations

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"walrelay/decoder"
)

// oldest is the first server version that walrelay works with.
const oldest = 14_00_00

func checkServer(ctx context.Context, conn *pgx.Conn) error {
	var version int
	var name string
	var standby bool
	err := conn.QueryRow(ctx, `select current_setting('server_version_num')::int, current_setting('server_version'), pg_is_in_recovery()`).
		Scan(&version, &name, &standby)
	switch {
	case err != nil:
		return fmt.Errorf("read the server's version: %w", err)
	case version < oldest:
		return fmt.Errorf("PostgreSQL %s is too old: walrelay needs 14 or newer", name)
	case standby:
		return errors.New("this server is a standby and cannot be written to: set DATABASE_URL to the primary")
	}
	return nil
}

// ServerNotes names settings of the server that the relay cannot work with, or that leave the
// database unprotected, with the statement that mends each.
func ServerNotes(ctx context.Context, conn *pgx.Conn, o Options) ([]string, error) {
	if o.Polling {
		return nil, nil // there is no slot
	}
	var walLevel, keep string
	err := conn.QueryRow(ctx, `select current_setting('wal_level'), current_setting('max_slot_wal_keep_size')`).Scan(&walLevel, &keep)
	if err != nil {
		return nil, fmt.Errorf("read the server's settings: %w", err)
	}
	var notes []string
	if walLevel != "logical" {
		notes = append(notes, fmt.Sprintf("wal_level is %s and must be logical: alter system set wal_level = 'logical'; then restart PostgreSQL", walLevel))
	}
	if keep == "-1" {
		notes = append(notes, "max_slot_wal_keep_size is not set: while no relay runs, its slot can hold back WAL until the disk is full: "+
			"alter system set max_slot_wal_keep_size = '10GB'; select pg_reload_conf()")
	}
	return notes, nil
}

// inspect finds out where a migration stands. An error is something that must be mended by hand.
func inspect(ctx context.Context, conn *pgx.Conn, o Options, m Migration) (Step, error) {
	step := Step{Migration: m, State: Pending}
	there, notes, err := look(ctx, conn, o, m)
	if err != nil {
		return step, err
	}
	step.Notes = notes
	recorded, checksum, at, err := recall(ctx, conn, o.Table.Schema, m)
	switch {
	case err != nil:
		return step, err
	case recorded && there && checksum != m.Checksum:
		return step, fmt.Errorf("was changed after it was applied on %s: use the walrelay that applied it, or restore the file",
			at.Format(time.RFC3339))
	case recorded && there:
		step.State, step.At = Applied, at
	case recorded:
		step.Notes = append(step.Notes, fmt.Sprintf("was applied on %s and is gone", at.Format(time.RFC3339)))
	case there:
		step.State = Found
		step.Notes = append(step.Notes, "was there already, not made by walrelay migrate: left as it is")
	}
	return step, nil
}

// recall reads what the history says. A history that is not there is empty.
func recall(ctx context.Context, conn *pgx.Conn, schema string, m Migration) (found bool, checksum string, at time.Time, err error) {
	var there bool
	if err = conn.QueryRow(ctx, `select to_regclass($1) is not null`, history(schema)).Scan(&there); err != nil || !there {
		return false, "", at, err
	}
	err = conn.QueryRow(ctx, `select checksum, applied_at from `+history(schema)+` where version = $1 and makes = $2`,
		m.Version, m.Makes).Scan(&checksum, &at)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, "", at, nil
	}
	return err == nil, checksum, at, err
}

// look finds the object that a migration makes. It knows the objects by the number of their file.
func look(ctx context.Context, conn *pgx.Conn, o Options, m Migration) (there bool, notes []string, err error) {
	switch m.Version {
	case 1:
		return lookTable(ctx, conn, o)
	case 2:
		return lookPublication(ctx, conn, o)
	case notifyVersion:
		return lookTrigger(ctx, conn, o)
	}
	panic("migrations: nobody looks for what " + m.Name + " makes")
}

func lookTable(ctx context.Context, conn *pgx.Conn, o Options) (bool, []string, error) {
	var oid uint32
	var kind, persistence string
	err := conn.QueryRow(ctx, `select c.oid, c.relkind::text, c.relpersistence::text
		from pg_class c join pg_namespace n on n.oid = c.relnamespace
		where n.nspname = $1 and c.relname = $2`, o.Table.Schema, o.Table.Name).Scan(&oid, &kind, &persistence)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return false, nil, nil
	case err != nil:
		return false, nil, fmt.Errorf("look for the outbox table: %w", err)
	case kind != "r" && kind != "p":
		return false, nil, fmt.Errorf("%s is not a table: choose another OUTBOX_TABLE", o.Table)
	case persistence != "p":
		return false, nil, fmt.Errorf("%s is not in the WAL and cannot be followed: alter table %s set logged", o.Table, o.Table.SQL())
	}
	columns, err := readColumns(ctx, conn, oid)
	if err != nil {
		return false, nil, err
	}
	// The relay's own judgement: what it could not read must not look well here.
	if err := decoder.CheckShape(o.Table, o.Columns, columns); err != nil {
		return false, nil, err
	}
	return true, judgeColumns(o, columns), checkPayload(o, columns)
}

func readColumns(ctx context.Context, conn *pgx.Conn, table uint32) ([]decoder.Column, error) {
	rows, err := conn.Query(ctx, `select a.attname::text, case when t.typtype = 'd' then t.typbasetype else t.oid end
		from pg_attribute a join pg_type t on t.oid = a.atttypid
		where a.attrelid = $1 and a.attnum > 0 and not a.attisdropped order by a.attnum`, table)
	if err != nil {
		return nil, fmt.Errorf("read the columns of the outbox table: %w", err)
	}
	columns, err := pgx.CollectRows(rows, pgx.RowToStructByPos[decoder.Column])
	if err != nil {
		return nil, fmt.Errorf("read the columns of the outbox table: %w", err)
	}
	return columns, nil
}

// judgeColumns names the optional columns that the table does not have.
func judgeColumns(o Options, columns []decoder.Column) []string {
	c := o.Columns
	var notes []string
	for _, col := range []struct{ name, variable, without string }{
		{c.Headers, "HEADERS", "records carry no headers of the writer's"},
		{c.Topic, "TOPIC", "a writer cannot choose a topic"},
		{c.PartitionKey, "PARTITION_KEY", "the aggregate id is always the record key"},
		{c.CreatedAt, "CREATED_AT", "records carry no created_at"},
		{c.PublishedAt, "PUBLISHED_AT", "rows cannot be marked: set RELAY_AFTER_PUBLISH=delete"},
	} {
		if !slices.ContainsFunc(columns, func(found decoder.Column) bool { return found.Name == col.name }) {
			notes = append(notes, fmt.Sprintf("has no column %q (OUTBOX_COLUMN_%s): %s", col.name, col.variable, col.without))
		}
	}
	return notes
}

// checkPayload refuses a table whose payload is not of the type that was asked for: it is not changed.
func checkPayload(o Options, columns []decoder.Column) error {
	want := map[string]uint32{"jsonb": pgtype.JSONBOID, "json": pgtype.JSONOID, "text": pgtype.TextOID, "bytea": pgtype.ByteaOID}[o.Payload]
	for _, c := range columns {
		if o.Payload != "" && c.Name == o.Columns.Payload && c.TypeOID != want {
			return fmt.Errorf("column %q of %s is not %s, and an existing table is never changed: leave --payload out, or alter the column yourself",
				c.Name, o.Table, o.Payload)
		}
	}
	return nil
}

func lookPublication(ctx context.Context, conn *pgx.Conn, o Options) (bool, []string, error) {
	var inserts, more, viaRoot, includes bool
	err := conn.QueryRow(ctx, `select pubinsert, pubupdate or pubdelete or pubtruncate, pubviaroot,
			exists (select from pg_publication_tables t where t.pubname = p.pubname and t.schemaname = $2 and t.tablename = $3)
			or exists (select from pg_publication_rel r join pg_class c on c.oid = r.prrelid join pg_namespace n on n.oid = c.relnamespace
				where r.prpubid = p.oid and n.nspname = $2 and c.relname = $3)
		from pg_publication p where pubname = $1`, o.Publication, o.Table.Schema, o.Table.Name).
		Scan(&inserts, &more, &viaRoot, &includes)
	name := quote(o.Publication)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return false, nil, nil
	case err != nil:
		return false, nil, fmt.Errorf("look for the publication: %w", err)
	case !includes:
		return false, nil, fmt.Errorf("publication %s exists and does not include %s: alter publication %s add table %s; or choose another REPLICATION_PUBLICATION",
			name, o.Table, name, o.Table.SQL())
	case !inserts:
		return false, nil, fmt.Errorf("publication %s does not publish inserts: alter publication %s set (publish = 'insert')", name, name)
	}
	var notes []string
	if more {
		notes = append(notes, fmt.Sprintf("publishes more than inserts, which costs time: alter publication %s set (publish = 'insert')", name))
	}
	if !viaRoot {
		notes = append(notes, fmt.Sprintf("does not publish through the root, so the table must not be partitioned: alter publication %s set (publish_via_partition_root = true)", name))
	}
	return true, notes, nil
}

// lookTrigger looks for the trigger by its name: the relay does too.
func lookTrigger(ctx context.Context, conn *pgx.Conn, o Options) (there bool, notes []string, err error) {
	var state string
	err = conn.QueryRow(ctx, `select tgenabled::text from pg_trigger
		where tgrelid = to_regclass($1) and not tgisinternal and tgname = 'walrelay_notify'`, o.Table.SQL()).Scan(&state)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return false, nil, nil
	case err != nil:
		return false, nil, fmt.Errorf("look for the trigger that notifies: %w", err)
	case state == "D" || state == "R":
		notes = append(notes, fmt.Sprintf("is disabled, and wakes nobody: alter table %s enable trigger walrelay_notify", o.Table.SQL()))
	}
	return true, notes, nil
}
