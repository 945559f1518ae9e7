package replication

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"walrelay/internal/postgres"
)

const (
	// slotTimeout bounds the creation of a slot, which waits for every write transaction that runs
	// in the whole cluster (FACTS A3).
	slotTimeout = 30 * time.Second

	// countLimit bounds the count of unmarked rows, which is only there to be read by a person.
	countLimit = 1_000_000
)

// ensure creates publication and slot where they are missing. The publication comes first: a slot
// that is older than its publication cannot decode what lies between.
func (s *Source) ensure(ctx context.Context, sql *pgx.Conn, repl *pgconn.PgConn, v postgres.Server) error {
	w, err := s.watch(ctx, sql)
	if err != nil {
		return err
	}
	if w.Slot && s.past.creating {
		// It was made by a session that ended before it could look for rows that the slot would miss.
		if err := s.dropSlot(ctx, repl); err != nil {
			return err
		}
		w.Slot = false
	}
	if w.Slot {
		if err := s.checkSlot(w, v.Database); err != nil {
			return err
		}
		return s.checkPublication(w, v.TableOID)
	}
	if s.past.streamed {
		return &postgres.ModeError{
			Reason: fmt.Sprintf("slot %q is gone: someone dropped it", s.cfg.Slot),
			Remedy: fmt.Sprintf("rows committed since then are not in any stream; publish or mark what is left (%s), then start walrelay again: it creates a new slot", s.unmarkedSQL()),
		}
	}
	if !w.Publication {
		if _, err := querySimple(ctx, sql.PgConn(), "/* walrelay:publication */ "+s.createPublicationSQL()); err != nil {
			if _, answered := errors.AsType[*pgconn.PgError](err); !answered || postgres.Locked(err) || serverStopping(err) {
				return fmt.Errorf("create publication %q: %w", s.cfg.Publication, err)
			}
			return &postgres.ModeError{
				Reason: fmt.Sprintf("publication %q does not exist and cannot be created", s.cfg.Publication),
				Remedy: "run as the owner of the table: " + s.createPublicationSQL(),
				Err:    err,
			}
		}
		s.log.Info("publication created", "publication", s.cfg.Publication, "table", s.Table.String())
		if w, err = s.watch(ctx, sql); err != nil {
			return err
		}
	}
	if err := s.checkPublication(w, v.TableOID); err != nil {
		return err
	}
	// Once without the slot, since its creation may take long; once in the slot's own snapshot.
	rows, err := s.countUnmarked(ctx, v, func(ctx context.Context, q string) ([][]string, error) {
		return querySimple(ctx, sql.PgConn(), q)
	})
	if err != nil {
		return err
	}
	if rows > 0 {
		return s.refuseRows(rows)
	}
	return s.createSlot(ctx, sql, repl, v)
}

// createSlot creates the slot and counts, in the snapshot from which the slot starts, the rows that
// it would never stream.
func (s *Source) createSlot(ctx context.Context, sql *pgx.Conn, repl *pgconn.PgConn, v postgres.Server) error {
	// The statement is cancelled, not abandoned: a walsender whose client is gone goes on waiting and
	// leaves a slot behind. statement_timeout does not reach it.
	cancel := func() {
		c, done := context.WithTimeout(context.WithoutCancel(ctx), postgres.ConnectTimeout)
		defer done()
		if err := repl.CancelRequest(c); err != nil {
			s.log.Warn("cancel the creation of the slot", "error", err)
		}
	}
	timer := time.AfterFunc(slotTimeout, cancel)
	defer timer.Stop()
	defer context.AfterFunc(ctx, cancel)()
	ctx, done := context.WithTimeout(context.WithoutCancel(ctx), 2*slotTimeout)
	defer done()
	run := func(ctx context.Context, q string) ([][]string, error) { return querySimple(ctx, repl, q) }

	if _, err := run(ctx, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"); err != nil {
		return fmt.Errorf("create slot: %w", err)
	}
	options := "USE_SNAPSHOT"
	if s.cfg.Failover && v.Version >= 170000 {
		options = "(SNAPSHOT 'use', FAILOVER true)"
	}
	s.log.Info("creating slot; this waits for the write transactions that run now", "slot", s.cfg.Slot)
	s.past.creating = true
	if _, err := run(ctx, fmt.Sprintf(`CREATE_REPLICATION_SLOT "%s" LOGICAL pgoutput %s`, s.cfg.Slot, options)); err != nil {
		return s.slotError(ctx, sql, err)
	}
	timer.Stop()
	rows, err := s.countUnmarked(ctx, v, run)
	if err == nil && rows > 0 {
		err = s.refuseRows(rows)
	}
	if _, cerr := run(ctx, "COMMIT"); err == nil && cerr != nil {
		err = fmt.Errorf("create slot: %w", cerr)
	}
	if err != nil {
		// The slot was ours for a moment and nothing was read from it. Left behind, it would look
		// as if every row of the table were in its stream.
		return errors.Join(err, s.dropSlot(ctx, repl))
	}
	s.past.creating = false
	s.log.Info("slot created", "slot", s.cfg.Slot)
	return nil
}

func (s *Source) dropSlot(ctx context.Context, repl *pgconn.PgConn) error {
	if _, err := querySimple(ctx, repl, fmt.Sprintf(`DROP_REPLICATION_SLOT "%s" WAIT`, s.cfg.Slot)); err != nil {
		return fmt.Errorf("drop slot %q again: %w", s.cfg.Slot, err)
	}
	s.past.creating = false
	return nil
}

// slotError names what keeps a slot from being created.
func (s *Source) slotError(ctx context.Context, sql *pgx.Conn, err error) error {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return fmt.Errorf("create slot %q: %w", s.cfg.Slot, err)
	}
	switch pg.Code {
	case "53400":
		return &postgres.ModeError{
			Reason: "every replication slot of the server is in use",
			Remedy: "drop one (SELECT slot_name, active FROM pg_replication_slots) or raise max_replication_slots",
			Err:    err,
		}
	case "42501":
		return postgres.NoReplication(s.Outbox.Database.User, err)
	case "57014":
		return fmt.Errorf("slot %q could not be created within %v: it waits for %s: %w", s.cfg.Slot, slotTimeout, blocker(ctx, sql), err)
	}
	return fmt.Errorf("create slot %q: %w", s.cfg.Slot, err)
}

// blocker names the oldest write transaction of the cluster.
func blocker(ctx context.Context, sql *pgx.Conn) string {
	ctx, done := postgres.Limited(ctx)
	defer done()
	var text string
	err := sql.QueryRow(ctx, `/* walrelay:blocker */
SELECT what FROM (
  SELECT format('pid %s of %s in database %s, open since %s: %s (end it with SELECT pg_terminate_backend(%s))',
                pid, usename, datname, xact_start, left(query, 100), pid) AS what, xact_start AS since
  FROM pg_stat_activity WHERE backend_xid IS NOT NULL AND pid <> pg_backend_pid()
  UNION ALL
  SELECT format('prepared transaction %L of %s in database %s (end it with COMMIT PREPARED or ROLLBACK PREPARED)', gid, owner, database), prepared
  FROM pg_prepared_xacts) t
ORDER BY since LIMIT 1`).Scan(&text)
	if err != nil {
		return "a write transaction (see pg_stat_activity, column backend_xid, and pg_prepared_xacts)"
	}
	return text
}

// countUnmarked counts the rows that look unpublished to whoever runs the query.
func (s *Source) countUnmarked(ctx context.Context, v postgres.Server, run func(context.Context, string) ([][]string, error)) (int, error) {
	where := ""
	if v.HasMark {
		where = " WHERE " + pgx.Identifier{s.Columns.PublishedAt}.Sanitize() + " IS NULL"
	}
	rows, err := run(ctx, fmt.Sprintf("/* walrelay:unmarked */ SELECT count(*) FROM (SELECT 1 FROM %s%s LIMIT %d) t", s.Table.SQL(), where, countLimit))
	if postgres.Refused(err) {
		return 0, s.Grant("SELECT", err)
	}
	if err != nil {
		return 0, fmt.Errorf("count the unpublished rows of %s: %w", s.Table, err)
	}
	var n int
	if len(rows) != 1 {
		return 0, fmt.Errorf("count the unpublished rows of %s: %d rows came back", s.Table, len(rows))
	}
	if _, err := fmt.Sscan(rows[0][0], &n); err != nil {
		return 0, fmt.Errorf("count the unpublished rows of %s: %w", s.Table, err)
	}
	return n, nil
}

func (s *Source) unmarkedSQL() string {
	return fmt.Sprintf("SELECT count(*) FROM %s WHERE %s IS NULL", s.Table.SQL(), pgx.Identifier{s.Columns.PublishedAt}.Sanitize())
}

func (s *Source) refuseRows(n int) error {
	count := fmt.Sprintf("%d unpublished rows", n)
	switch {
	case n == 1:
		count = "1 unpublished row"
	case n >= countLimit:
		count = "at least " + count
	}
	mark := fmt.Sprintf("UPDATE %s SET %s = now() WHERE %s IS NULL", s.Table.SQL(),
		pgx.Identifier{s.Columns.PublishedAt}.Sanitize(), pgx.Identifier{s.Columns.PublishedAt}.Sanitize())
	return &postgres.ModeError{
		Reason: fmt.Sprintf("slot %q does not exist and table %s already holds %s, which a new slot would never stream", s.cfg.Slot, s.Table, count),
		Remedy: "have RELAY_MODE=polling publish them, or mark what is on Kafka already (" + mark + "), and start walrelay again",
	}
}
