package replication

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"walrelay/checkpoint"
	"walrelay/decoder"
	"walrelay/outbox"
)

// oldest is the oldest server whose pgoutput has everything that the session relies on.
const oldest = 140000

// server is what one look at the server and the table says, before anything is changed.
type server struct {
	version  int    // server_version_num
	database string // current_database()
	recovery bool
	walLevel string
	tableOID uint32
	columns  []decoder.Column
	hasMark  bool // the table has the published_at column
}

// inspectServer reads what must be true of the server and the table, and refuses what is not, with
// the command that mends it.
func (s *Source) inspectServer(ctx context.Context, conn *pgx.Conn) (server, error) {
	ctx, done := limited(ctx)
	defer done()
	var v server
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
FROM (SELECT to_regclass($1)::oid AS oid) t`, s.table.SQL(), s.columns.ID, s.columns.EventID, s.columns.PublishedAt).
		Scan(&v.version, &v.database, &v.recovery, &v.walLevel, &oid, &can.read, &can.mark, &can.lock, &can.delete, &indexed)
	if refused(err) {
		return v, &FatalError{ // to_regclass is what asks for a right
			Reason: fmt.Sprintf("role %q may not use schema %q", s.db.User, s.table.Schema),
			Remedy: fmt.Sprintf("GRANT USAGE ON SCHEMA %s TO %s", pgx.Identifier{s.table.Schema}.Sanitize(), pgx.Identifier{s.db.User}.Sanitize()),
			Err:    err,
		}
	}
	if err != nil {
		return v, fmt.Errorf("look at the server: %w", err)
	}
	switch {
	case v.version < oldest:
		return v, &FatalError{
			Reason: fmt.Sprintf("PostgreSQL %d is too old", v.version/10000),
			Remedy: "walrelay needs PostgreSQL 14 or later",
		}
	case oid == nil:
		return v, &FatalError{
			Reason: fmt.Sprintf("table %s does not exist in database %q", s.table, v.database),
			Remedy: "run walrelay migrate up, or name your table in OUTBOX_TABLE",
		}
	case v.recovery:
		return v, errors.New("the server is a standby: rows cannot be settled there; waiting for a primary (list it in DATABASE_URL with target_session_attrs=read-write)")
	case v.walLevel != "logical":
		return v, &ModeError{
			Reason: fmt.Sprintf("wal_level is %s", v.walLevel),
			Remedy: "run ALTER SYSTEM SET wal_level = logical and restart PostgreSQL",
		}
	}
	v.tableOID = *oid
	if v.columns, err = readColumns(ctx, conn, v.tableOID); err != nil {
		return v, err
	}
	for _, c := range v.columns {
		v.hasMark = v.hasMark || c.Name == s.columns.PublishedAt
	}
	if err := decoder.CheckShape(s.table, s.columns, v.columns); err != nil {
		return v, &FatalError{Reason: err.Error()}
	}
	if s.after != checkpoint.Keep && !v.uuidEvents(s.columns.EventID) {
		return v, &FatalError{
			Reason: fmt.Sprintf("column %q of table %s is not of type uuid: rows are settled by it", s.columns.EventID, s.table),
			Remedy: fmt.Sprintf("ALTER TABLE %s ALTER COLUMN %s TYPE uuid USING %s::uuid", s.table.SQL(),
				pgx.Identifier{s.columns.EventID}.Sanitize(), pgx.Identifier{s.columns.EventID}.Sanitize()),
		}
	}
	if s.after != checkpoint.Keep && !*indexed {
		return v, &FatalError{
			Reason: fmt.Sprintf("table %s has no index that starts with %s or %s: settling a row would read the whole table", s.table, s.columns.ID, s.columns.EventID),
			Remedy: fmt.Sprintf("CREATE UNIQUE INDEX CONCURRENTLY ON %s (%s)", s.table.SQL(), pgx.Identifier{s.columns.ID}.Sanitize()),
		}
	}
	return v, s.checkSettle(v, can)
}

func (v server) uuidEvents(column string) bool {
	return slices.Contains(v.columns, decoder.Column{Name: column, TypeOID: pgtype.UUIDOID})
}

// rights are what the relay's role may do with the table; nil where there is no table.
type rights struct {
	read   *bool
	mark   *bool // update the published_at column
	lock   *bool // update any column, which is what FOR UPDATE asks for
	delete *bool
}

// checkSettle refuses a table that this relay could publish but not settle.
func (s *Source) checkSettle(v server, can rights) error {
	if s.after == checkpoint.Mark && !v.hasMark {
		return &FatalError{
			Reason: fmt.Sprintf("table %s has no column %q to mark rows with", s.table, s.columns.PublishedAt),
			Remedy: "add it, name yours in OUTBOX_COLUMN_PUBLISHED_AT, or set RELAY_AFTER_PUBLISH=delete",
		}
	}
	update := "UPDATE"
	if v.hasMark {
		update = fmt.Sprintf("UPDATE (%s)", pgx.Identifier{s.columns.PublishedAt}.Sanitize())
	}
	switch {
	case s.after == checkpoint.Keep:
		return nil
	case !*can.read:
		return s.grant("SELECT", nil)
	case s.after == checkpoint.Mark && !*can.mark, !*can.lock:
		return s.grant(update, nil)
	case s.after == checkpoint.Delete && !*can.delete:
		return s.grant("DELETE", nil)
	}
	return nil
}

// grant is the error of a role that lacks a right on the table.
func (s *Source) grant(right string, err error) error {
	return &FatalError{
		Reason: fmt.Sprintf("role %q may not %s on table %s", s.db.User, right, s.table),
		Remedy: fmt.Sprintf("GRANT %s ON %s TO %s", right, s.table.SQL(), pgx.Identifier{s.db.User}.Sanitize()),
		Err:    err,
	}
}

// refused reports that a statement failed for a right that the role does not have.
func refused(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pg.Code == "42501"
}

// locked reports that a statement gave up waiting for a lock of somebody else's.
func locked(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pg.Code == "55P03"
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

// Watch is what the watch statement saw: all that must be known of the server while the stream runs,
// from one statement. Metrics serve it from memory.
type Watch struct {
	TableOID       uint32        // 0: the table is gone
	Current        pglogrepl.LSN // where the server writes
	Publication    bool          // it exists
	Inserts        bool          // it publishes inserts
	ViaRoot        bool
	Member         bool // the table is in it
	RowFilter      string
	MissingColumns []string // columns that a column list hides
	Slot           bool     // it exists
	Plugin         string
	TwoPhase       bool // it decodes prepared transactions
	SlotDatabase   string
	ActivePID      int32 // 0: nobody streams from it
	ConfirmedFlush pglogrepl.LSN
	Restart        pglogrepl.LSN // 0: lost
	WALStatus      string        // reserved, extended, unreserved, lost
	SafeWALSize    int64         // bytes until the slot is lost; -1: no limit is set
	Invalidation   string        // PostgreSQL 17 and later
	SyncState      string        // of our walsender: async, potential, sync, quorum
}

const watchSQL = `/* walrelay:watch */
SELECT coalesce(t.oid, 0), CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END,
       p.oid IS NOT NULL, coalesce(p.pubinsert, false), coalesce(p.pubviaroot, false),
       pt.pubname IS NOT NULL, coalesce(to_jsonb(pt)->>'rowfilter', ''),
       coalesce((SELECT array_agg(a.attname::text ORDER BY a.attnum) FROM pg_attribute a WHERE a.attrelid = t.oid AND a.attname = ANY($6)
                 AND NOT a.attisdropped AND to_jsonb(pt) ? 'attnames' AND NOT to_jsonb(pt)->'attnames' ? a.attname::text), '{}'),
       s.slot_name IS NOT NULL, coalesce(s.plugin::text, ''), coalesce(s.two_phase, false), coalesce(s.database::text, ''), coalesce(s.active_pid, 0),
       coalesce(s.confirmed_flush_lsn, '0/0'), coalesce(s.restart_lsn, '0/0'), coalesce(s.wal_status, ''), coalesce(s.safe_wal_size, -1),
       coalesce(to_jsonb(s)->>'invalidation_reason', ''), coalesce(r.sync_state, '')
FROM (SELECT to_regclass($1)::oid AS oid) t
LEFT JOIN pg_publication p ON p.pubname = $2
LEFT JOIN pg_publication_tables pt ON pt.pubname = p.pubname AND pt.schemaname = $3 AND pt.tablename = $4
LEFT JOIN pg_replication_slots s ON s.slot_name = $5
LEFT JOIN pg_stat_replication r ON r.pid = s.active_pid`

// watch looks once.
func (s *Source) watch(ctx context.Context, conn *pgx.Conn) (Watch, error) {
	ctx, done := limited(ctx)
	defer done()
	var w Watch
	err := conn.QueryRow(ctx, watchSQL, s.table.SQL(), s.cfg.Publication, s.table.Schema, s.table.Name, s.cfg.Slot, columnNames(s.columns)).
		Scan(&w.TableOID, &w.Current, &w.Publication, &w.Inserts, &w.ViaRoot, &w.Member, &w.RowFilter, &w.MissingColumns,
			&w.Slot, &w.Plugin, &w.TwoPhase, &w.SlotDatabase, &w.ActivePID, &w.ConfirmedFlush, &w.Restart, &w.WALStatus, &w.SafeWALSize,
			&w.Invalidation, &w.SyncState)
	if err != nil {
		return w, fmt.Errorf("watch statement: %w", err)
	}
	return w, nil
}

func columnNames(c outbox.Columns) []string {
	return []string{c.ID, c.EventID, c.AggregateType, c.AggregateID, c.EventType, c.Payload, c.Headers, c.Topic, c.PartitionKey, c.CreatedAt, c.PublishedAt}
}

// checkPublication says whether every insert into the table is in the stream. As long as it is not,
// no keepalive may be confirmed: it would pass over rows that were never sent (H21).
func (s *Source) checkPublication(w Watch, table uint32) error {
	name := pgx.Identifier{s.cfg.Publication}.Sanitize()
	missed := ""
	if w.Slot {
		missed = "; rows committed meanwhile are in the table but not in the stream"
	}
	switch {
	case w.TableOID != table:
		return &ModeError{
			Reason: fmt.Sprintf("table %s was dropped or replaced by another table", s.table),
			Remedy: fmt.Sprintf("ALTER PUBLICATION %s SET TABLE %s and start walrelay again%s", name, s.table.SQL(), missed),
		}
	case !w.Publication:
		return &ModeError{
			Reason: fmt.Sprintf("publication %q does not exist", s.cfg.Publication),
			Remedy: s.createPublicationSQL() + missed,
		}
	case !w.Inserts:
		return &ModeError{
			Reason: fmt.Sprintf("publication %q does not publish inserts", s.cfg.Publication),
			Remedy: fmt.Sprintf("ALTER PUBLICATION %s SET (publish = 'insert')%s", name, missed),
		}
	case !w.Member && !w.ViaRoot:
		return &ModeError{
			Reason: fmt.Sprintf("publication %q does not publish table %s", s.cfg.Publication, s.table),
			Remedy: fmt.Sprintf("ALTER PUBLICATION %s ADD TABLE %s; for a partitioned table also ALTER PUBLICATION %s SET (publish_via_partition_root = true)%s", name, s.table.SQL(), name, missed),
		}
	case !w.Member:
		return &ModeError{
			Reason: fmt.Sprintf("publication %q does not publish table %s", s.cfg.Publication, s.table),
			Remedy: fmt.Sprintf("ALTER PUBLICATION %s ADD TABLE %s%s", name, s.table.SQL(), missed),
		}
	case w.RowFilter != "":
		return &ModeError{
			Reason: fmt.Sprintf("publication %q has a row filter on table %s (%s): filtered rows would never be published", s.cfg.Publication, s.table, w.RowFilter),
			Remedy: s.wholeTableSQL() + missed,
		}
	case len(w.MissingColumns) > 0:
		return &ModeError{
			Reason: fmt.Sprintf("publication %q hides columns of table %s: %s", s.cfg.Publication, s.table, strings.Join(w.MissingColumns, ", ")),
			Remedy: s.wholeTableSQL(),
		}
	}
	return nil
}

// wholeTableSQL takes a row filter or a column list away. SET TABLE would take other tables away too.
func (s *Source) wholeTableSQL() string {
	name, table := pgx.Identifier{s.cfg.Publication}.Sanitize(), s.table.SQL()
	return fmt.Sprintf("BEGIN; ALTER PUBLICATION %s DROP TABLE %s; ALTER PUBLICATION %s ADD TABLE %s; COMMIT", name, table, name, table)
}

func (s *Source) createPublicationSQL() string {
	return fmt.Sprintf("CREATE PUBLICATION %s FOR TABLE %s WITH (publish = 'insert', publish_via_partition_root = true)",
		pgx.Identifier{s.cfg.Publication}.Sanitize(), s.table.SQL())
}

// checkSlot says whether the slot can be streamed from.
func (s *Source) checkSlot(w Watch, database string) error {
	again := fmt.Sprintf("SELECT pg_drop_replication_slot('%s'), publish or mark the rows that are left (%s), then start walrelay again: it creates a new slot",
		s.cfg.Slot, s.unmarkedSQL())
	switch {
	case w.Plugin == "":
		return &FatalError{
			Reason: fmt.Sprintf("slot %q belongs to something else: it is a physical slot", s.cfg.Slot),
			Remedy: "set REPLICATION_SLOT to another name",
		}
	case w.Plugin != "pgoutput":
		return &FatalError{
			Reason: fmt.Sprintf("slot %q belongs to something else: its plugin is %q, not pgoutput", s.cfg.Slot, w.Plugin),
			Remedy: "set REPLICATION_SLOT to another name",
		}
	case w.SlotDatabase != database:
		return &FatalError{
			Reason: fmt.Sprintf("slot %q belongs to database %q, not to %q", s.cfg.Slot, w.SlotDatabase, database),
			Remedy: "set REPLICATION_SLOT to another name",
		}
	case w.WALStatus == "lost" || w.Invalidation != "":
		reason := w.Invalidation
		if reason == "" {
			reason = "it exceeded max_slot_wal_keep_size"
		}
		return &ModeError{
			Reason: fmt.Sprintf("slot %q is lost: %s", s.cfg.Slot, reason),
			Remedy: again,
		}
	case w.TwoPhase:
		// From PostgreSQL 15 on such a slot sends what is prepared, asked or not.
		return &ModeError{
			Reason: fmt.Sprintf("slot %q was made with two_phase: PostgreSQL would send the rows of prepared transactions before they are committed", s.cfg.Slot),
			Remedy: again,
		}
	}
	return nil
}

// checkSync refuses to run as a synchronous standby: every commit would wait for our confirmation,
// and our confirmation waits for a commit of ours (H13).
func checkSync(w Watch) error {
	if w.SyncState == "" || w.SyncState == "async" {
		return nil
	}
	return &FatalError{
		Reason: fmt.Sprintf("synchronous_standby_names makes this relay a synchronous standby (%s): commits would wait for Kafka", w.SyncState),
		Remedy: fmt.Sprintf("name your standbys in synchronous_standby_names instead of '*', leaving out %s", applicationName),
	}
}
