package migrations

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// State is where one migration stands in one database.
type State string

const (
	Pending State = "pending"
	Applied State = "applied"
	Found   State = "found" // what it makes is there, and was not made by a migration
)

// Step is one migration as a database has it.
type Step struct {
	Migration
	State   State
	At      time.Time // of its application
	Changed bool      // by this call
	Notes   []string  // for the operator
}

const (
	// lockWait bounds the wait for another migrate; each attempt is a statement of its own, so that
	// the wait holds no snapshot.
	lockWait  = 30 * time.Second
	lockRetry = 500 * time.Millisecond
	// ddlLockTimeout bounds the wait for the lock of a table that somebody uses, because whoever
	// comes after a waiting statement waits too.
	ddlLockTimeout = "5s"
)

// Up applies what is missing, each file in a transaction of its own. It makes objects and never
// changes one that it finds: an outbox table made by others is described in the notes and left as it
// is. A second Up at the same time waits for the first, 30 seconds at most.
func Up(ctx context.Context, conn *pgx.Conn, o Options) (steps []Step, err error) {
	all, err := All(o)
	if err != nil {
		return nil, err
	}
	if err := checkServer(ctx, conn); err != nil {
		return nil, err
	}
	unlock, err := lock(ctx, conn, o.Table.Schema, lockWait)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	if err := createHistory(ctx, conn, o.Table.Schema); err != nil {
		return nil, err
	}
	// One after the other: what a file finds may have been made by the one before it.
	for _, m := range all {
		step, err := inspect(ctx, conn, o, m)
		if err != nil {
			return steps, fmt.Errorf("%s: %w", m.Name, err)
		}
		if step.State == Pending && m.Optional && !o.Notify {
			continue // not there and not asked for
		}
		if step.State == Pending {
			if err := apply(ctx, conn, o, m); err != nil {
				return steps, fmt.Errorf("apply %s (%s): %w", m.Name, m.Makes, err)
			}
			step.State, step.Changed, step.At = Applied, true, time.Now()
		}
		steps = append(steps, step)
	}
	return steps, nil
}

// Status tells what Up would find. It changes nothing and takes no lock.
func Status(ctx context.Context, conn *pgx.Conn, o Options) ([]Step, error) {
	all, err := All(o)
	if err != nil {
		return nil, err
	}
	if err := checkServer(ctx, conn); err != nil {
		return nil, err
	}
	var steps []Step
	for _, m := range all {
		step, err := inspect(ctx, conn, o, m)
		if err != nil {
			return steps, fmt.Errorf("%s: %w", m.Name, err)
		}
		if step.State == Pending && m.Optional && !o.Notify {
			continue
		}
		steps = append(steps, step)
	}
	return steps, nil
}

func apply(ctx context.Context, conn *pgx.Conn, o Options, m Migration) error {
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "set local lock_timeout = '"+ddlLockTimeout+"'"); err != nil {
			return err
		}
		// The file holds several statements: the simple protocol.
		if _, err := tx.Conn().PgConn().Exec(ctx, m.SQL).ReadAll(); err != nil {
			return explain(err, o)
		}
		_, err := tx.Exec(ctx, `insert into `+history(o.Table.Schema)+` (version, makes, checksum) values ($1, $2, $3)
			on conflict (version, makes) do update
			set checksum = excluded.checksum, applied_at = excluded.applied_at, applied_by = excluded.applied_by`,
			m.Version, m.Makes, m.Checksum)
		return err
	})
}

// explain adds to an error of the server what to type.
func explain(err error, o Options) error {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return err
	}
	switch pg.Code {
	case "42501": // insufficient_privilege
		return fmt.Errorf("%w\nthe table needs CREATE on schema %s, the publication CREATE on the database and ownership of the table; "+
			`run "walrelay migrate print" as a user who has them`, err, quote(o.Table.Schema))
	case "55P03": // lock_not_available
		return fmt.Errorf("%w\nanother session has locked the table for more than %s: try again later", err, ddlLockTimeout)
	}
	return err
}

// lock takes the session lock of everybody who migrates in this schema and returns its release.
func lock(ctx context.Context, conn *pgx.Conn, schema string, wait time.Duration) (func() error, error) {
	const key = `hashtextextended('walrelay migrations ' || $1::text, 0)`
	for until := time.Now().Add(wait); ; {
		var got bool
		if err := conn.QueryRow(ctx, `select pg_try_advisory_lock(`+key+`)`, schema).Scan(&got); err != nil {
			return nil, fmt.Errorf("lock migrations: %w", err)
		}
		if got {
			break
		}
		var holder string
		err := conn.QueryRow(ctx, `select coalesce(string_agg(format('pid %s (%s, %s, since %s)', a.pid,
				coalesce(nullif(a.application_name, ''), 'unnamed'), coalesce(host(a.client_addr), 'local'), a.backend_start), ', '), 'nobody any more')
			from pg_locks l join pg_stat_activity a using (pid)
			where l.locktype = 'advisory' and l.objsubid = 1 and l.granted
			and l.database = (select oid from pg_database where datname = current_database())
			and ((l.classid::bigint << 32) | l.objid::bigint) = `+key, schema).Scan(&holder)
		if err != nil {
			return nil, fmt.Errorf("find who holds the migrations lock: %w", err)
		}
		if time.Now().After(until) {
			return nil, fmt.Errorf("another migrate is at work: its lock is held by %s; wait for it, or end it with: select pg_terminate_backend(<pid>)", holder)
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("lock migrations: %w", context.Cause(ctx))
		case <-time.After(lockRetry):
		}
	}
	return func() error {
		// The caller's context may have ended; the lock must not stay on a connection that lives on.
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if conn.IsClosed() {
			return nil // and the lock with it
		}
		if _, err := conn.Exec(ctx, `select pg_advisory_unlock(`+key+`)`, schema); err != nil {
			return fmt.Errorf("unlock migrations: %w", err)
		}
		return nil
	}, nil
}

// history is the table that remembers what was applied, one for all outbox tables of a schema.
func history(schema string) string { return pgx.Identifier{schema, "walrelay_migrations"}.Sanitize() }

func createHistory(ctx context.Context, conn *pgx.Conn, schema string) error {
	var schemaThere, tableThere bool
	err := conn.QueryRow(ctx, `select to_regnamespace($1) is not null, to_regclass($2) is not null`,
		quote(schema), history(schema)).Scan(&schemaThere, &tableThere)
	switch {
	case err != nil:
		return fmt.Errorf("look for the migrations table: %w", err)
	case !schemaThere:
		return fmt.Errorf("schema %s does not exist: create schema %s", schema, quote(schema))
	case tableThere:
		return nil // asked first because IF NOT EXISTS needs the right to create
	}
	_, err = conn.Exec(ctx, `create table `+history(schema)+` (
		version int not null,
		makes text not null,
		checksum text not null,
		applied_at timestamptz not null default now(),
		applied_by text not null default current_user,
		primary key (version, makes))`)
	if err != nil {
		return fmt.Errorf("create the migrations table %s: %w", history(schema), err)
	}
	return nil
}
