package replication

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"

	"walrelay/internal/postgres"
	"walrelay/outbox"
)

// inspect is what must be true of the server for a stream from it.
func (s *Source) inspect(ctx context.Context, conn *pgx.Conn) (postgres.Server, error) {
	v, err := s.Inspect(ctx, conn)
	if err == nil && v.WALLevel != "logical" {
		err = &postgres.ModeError{
			Reason: fmt.Sprintf("wal_level is %s", v.WALLevel),
			Remedy: "run ALTER SYSTEM SET wal_level = logical and restart PostgreSQL",
		}
	}
	return v, err
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
	ctx, done := postgres.Limited(ctx)
	defer done()
	var w Watch
	err := conn.QueryRow(ctx, watchSQL, s.Table.SQL(), s.cfg.Publication, s.Table.Schema, s.Table.Name, s.cfg.Slot, columnNames(s.Columns)).
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
		return &postgres.ModeError{
			Reason: fmt.Sprintf("table %s was dropped or replaced by another table", s.Table),
			Remedy: fmt.Sprintf("ALTER PUBLICATION %s SET TABLE %s and start walrelay again%s", name, s.Table.SQL(), missed),
		}
	case !w.Publication:
		return &postgres.ModeError{
			Reason: fmt.Sprintf("publication %q does not exist", s.cfg.Publication),
			Remedy: s.createPublicationSQL() + missed,
		}
	case !w.Inserts:
		return &postgres.ModeError{
			Reason: fmt.Sprintf("publication %q does not publish inserts", s.cfg.Publication),
			Remedy: fmt.Sprintf("ALTER PUBLICATION %s SET (publish = 'insert')%s", name, missed),
		}
	case !w.Member && !w.ViaRoot:
		return &postgres.ModeError{
			Reason: fmt.Sprintf("publication %q does not publish table %s", s.cfg.Publication, s.Table),
			Remedy: fmt.Sprintf("ALTER PUBLICATION %s ADD TABLE %s; for a partitioned table also ALTER PUBLICATION %s SET (publish_via_partition_root = true)%s", name, s.Table.SQL(), name, missed),
		}
	case !w.Member:
		return &postgres.ModeError{
			Reason: fmt.Sprintf("publication %q does not publish table %s", s.cfg.Publication, s.Table),
			Remedy: fmt.Sprintf("ALTER PUBLICATION %s ADD TABLE %s%s", name, s.Table.SQL(), missed),
		}
	case w.RowFilter != "":
		return &postgres.ModeError{
			Reason: fmt.Sprintf("publication %q has a row filter on table %s (%s): filtered rows would never be published", s.cfg.Publication, s.Table, w.RowFilter),
			Remedy: s.wholeTableSQL() + missed,
		}
	case len(w.MissingColumns) > 0:
		return &postgres.ModeError{
			Reason: fmt.Sprintf("publication %q hides columns of table %s: %s", s.cfg.Publication, s.Table, strings.Join(w.MissingColumns, ", ")),
			Remedy: s.wholeTableSQL(),
		}
	}
	return nil
}

// wholeTableSQL takes a row filter or a column list away. SET TABLE would take other tables away too.
func (s *Source) wholeTableSQL() string {
	name, table := pgx.Identifier{s.cfg.Publication}.Sanitize(), s.Table.SQL()
	return fmt.Sprintf("BEGIN; ALTER PUBLICATION %s DROP TABLE %s; ALTER PUBLICATION %s ADD TABLE %s; COMMIT", name, table, name, table)
}

func (s *Source) createPublicationSQL() string {
	return fmt.Sprintf("CREATE PUBLICATION %s FOR TABLE %s WITH (publish = 'insert', publish_via_partition_root = true)",
		pgx.Identifier{s.cfg.Publication}.Sanitize(), s.Table.SQL())
}

// checkSlot says whether the slot can be streamed from.
func (s *Source) checkSlot(w Watch, database string) error {
	again := fmt.Sprintf("SELECT pg_drop_replication_slot('%s'), publish or mark the rows that are left (%s), then start walrelay again: it creates a new slot",
		s.cfg.Slot, s.unmarkedSQL())
	switch {
	case w.Plugin == "":
		return &postgres.FatalError{
			Reason: fmt.Sprintf("slot %q belongs to something else: it is a physical slot", s.cfg.Slot),
			Remedy: "set REPLICATION_SLOT to another name",
		}
	case w.Plugin != "pgoutput":
		return &postgres.FatalError{
			Reason: fmt.Sprintf("slot %q belongs to something else: its plugin is %q, not pgoutput", s.cfg.Slot, w.Plugin),
			Remedy: "set REPLICATION_SLOT to another name",
		}
	case w.SlotDatabase != database:
		return &postgres.FatalError{
			Reason: fmt.Sprintf("slot %q belongs to database %q, not to %q", s.cfg.Slot, w.SlotDatabase, database),
			Remedy: "set REPLICATION_SLOT to another name",
		}
	case w.WALStatus == "lost" || w.Invalidation != "":
		reason := w.Invalidation
		if reason == "" {
			reason = "it exceeded max_slot_wal_keep_size"
		}
		return &postgres.ModeError{
			Reason: fmt.Sprintf("slot %q is lost: %s", s.cfg.Slot, reason),
			Remedy: again,
		}
	case w.TwoPhase:
		// From PostgreSQL 15 on such a slot sends what is prepared, asked or not.
		return &postgres.ModeError{
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
	return &postgres.FatalError{
		Reason: fmt.Sprintf("synchronous_standby_names makes this relay a synchronous standby (%s): commits would wait for Kafka", w.SyncState),
		Remedy: fmt.Sprintf("name your standbys in synchronous_standby_names instead of '*', leaving out %s", postgres.ApplicationName),
	}
}
