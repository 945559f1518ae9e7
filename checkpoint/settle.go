package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"walrelay/outbox"
)

// Outcome is what became of a row that was to be settled.
type Outcome uint8

const (
	Touched   Outcome = iota // marked or deleted by this statement: settled
	Marked                   // marked already: settled
	Locked                   // present and not settled; somebody holds a lock: it stays queued
	Invisible                // absent, and its transaction is not visible yet: it stays queued (H1)
	Removed                  // absent, although its transaction is visible: removed by the application, settled
)

func (o Outcome) String() string {
	switch o {
	case Touched:
		return "touched"
	case Marked:
		return "marked"
	case Locked:
		return "locked"
	case Invisible:
		return "invisible"
	case Removed:
		return "removed"
	}
	return "outcome " + strconv.Itoa(int(o))
}

// Settler marks or deletes rows that Kafka has. It works on the connection of a session, dies with it and is
// used by one goroutine. It opens no transaction: each call is one statement with one snapshot.
type Settler struct {
	conn     *pgx.Conn
	sql      string
	prepared bool
	keys     keyArrays
}

const settleName = "walrelay settle"

// settings are those of the connection, once, before the first call.
//
//   - synchronous_commit: the commit must be on this server's disk before the position is confirmed (H14) and must
//     not wait for standbys, of which this relay may be one (H13).
//   - lock_timeout: rows that are locked are passed over, but a LOCK TABLE would be waited for (H17).
//   - the isolation under which a concurrent change of a row is no error, and no read-only default.
//   - row_security: a policy that hides a row is an error here; without it the row would look removed.
//   - the rest keeps the plan on the indexes. A generic plan may be made while the table is empty and be kept while
//     it grows; and statistics of a queue are never right.
const settings = `
	set synchronous_commit = local;
	set lock_timeout = '2s';
	set default_transaction_isolation = 'read committed';
	set default_transaction_read_only = off;
	set row_security = off;
	set plan_cache_mode = force_generic_plan;
	set enable_seqscan = off;
	set jit = off`

// NewSettler makes a settler for RELAY_AFTER_PUBLISH=mark or delete. It says nothing to the server yet.
func NewSettler(conn *pgx.Conn, table outbox.Table, cols outbox.Columns, after AfterPublish) *Settler {
	return &Settler{conn: conn, sql: settleSQL(table, cols, after)}
}

// settleSQL is one statement, so that all of it sees one snapshot. It returns a row for each input that it did not
// touch, which is nothing as a rule.
//
// The lateral subqueries cannot be flattened into a join (one locks rows, the other has an OFFSET), so that every
// row is looked up by an index whatever the planner believes about the table. What is locked is then found by its
// tuple id, which a partitioned table may have once in each partition. IS TRUE keeps IN a hashed filter.
//
// A row that is changed by someone between the snapshot and the lock is not touched: the version that was locked is
// not in the snapshot. It comes back as locked and its turn comes again.
func settleSQL(table outbox.Table, cols outbox.Columns, after AfterPublish) string {
	ident := func(name string) string { return pgx.Identifier{name}.Sanitize() }
	change, unsettled, marked := "", "", ""
	switch after {
	case Mark:
		change = "update {table} o set {published_at} = now()"
		unsettled = "and o.{published_at} is null"
		marked = "o.{published_at} is not null"
	case Delete:
		// A row that is marked already is deleted as well.
		change = "delete from {table} o"
		marked = "false"
	default:
		panic("checkpoint: " + string(after) + " settles nothing")
	}
	statement := `/* walrelay:settle */
		with wanted as (
			select * from unnest($1::bigint[], $2::uuid[]) with ordinality as w (id, event_id, n)
		), locked as materialized (
			select l.* from wanted w cross join lateral (
				select o.tableoid as part, o.ctid as tuple from {table} o
				where o.{id} = w.id and o.{event_id} = w.event_id ` + unsettled + `
				for update skip locked
			) l
		), touched as (
			` + change + `
			where o.ctid = any (array(select tuple from locked))
			  and ((o.tableoid, o.ctid) in (select part, tuple from locked)) is true
			returning o.{id} as id, o.{event_id} as event_id
		)
		select w.n, present.marked, case when present.marked is null then pg_current_snapshot()::text end
		from wanted w left join lateral (
			select ` + marked + ` as marked from {table} o
			where o.{id} = w.id and o.{event_id} = w.event_id
			offset 0
		) present on true
		where (select count(*) from touched) < cardinality($1)
		  and (w.id, w.event_id) not in (select id, event_id from touched)`
	return strings.NewReplacer("{table}", table.SQL(), "{id}", ident(cols.ID), "{event_id}", ident(cols.EventID),
		"{published_at}", ident(cols.PublishedAt)).Replace(statement)
}

// Settle settles the rows and appends to out what became of each, in their order. When it returns without an error,
// what was touched is committed. After an error nothing is known and the connection may be gone.
func (s *Settler) Settle(ctx context.Context, rows []Pending, out []Outcome) ([]Outcome, error) {
	if len(rows) == 0 {
		return out, nil
	}
	first := len(out)
	for range rows {
		out = append(out, Touched)
	}
	err := s.Prepare(ctx)
	if err == nil {
		err = s.run(ctx, rows, out[first:])
	}
	var pgErr *pgconn.PgError
	switch {
	case errors.As(err, &pgErr) && pgErr.Code == lockNotAvailable:
		for i := range rows {
			out[first+i] = Locked
		}
	case err != nil:
		return out[:first], fmt.Errorf("settle %d rows: %w", len(rows), err)
	}
	return out, nil
}

// lockNotAvailable is what a lock_timeout that ran out says (PostgreSQL docs, Error Codes).
const lockNotAvailable = "55P03"

func (s *Settler) run(ctx context.Context, rows []Pending, out []Outcome) error {
	ids, events := s.keys.encode(rows)
	result := s.conn.PgConn().ExecPrepared(ctx, settleName, [][]byte{ids, events}, []int16{pgx.BinaryFormatCode}, nil)
	var wrong error
	for result.NextRow() {
		if err := untouched(result.Values(), rows, out); wrong == nil {
			wrong = err
		}
	}
	if _, err := result.Close(); err != nil {
		return err
	}
	return wrong
}

// Prepare pins the settings of the connection and prepares the statement. The first Settle does it otherwise.
func (s *Settler) Prepare(ctx context.Context) error {
	if s.prepared {
		return nil
	}
	if err := s.conn.PgConn().Exec(ctx, settings).Close(); err != nil {
		return fmt.Errorf("settings of the connection: %w", err)
	}
	if _, err := s.conn.Prepare(ctx, settleName, s.sql); err != nil {
		return fmt.Errorf("prepare the statement: %w", err)
	}
	s.prepared = true
	return nil
}

// untouched reads one row of the result: ordinal, marked (NULL where the row is absent), snapshot of the absent.
func untouched(values [][]byte, rows []Pending, out []Outcome) error {
	n, err := strconv.Atoi(string(values[0]))
	if err != nil || n < 1 || n > len(rows) {
		return fmt.Errorf("ordinal %q of %d rows", values[0], len(rows))
	}
	switch {
	case values[1] == nil:
		visible, err := isVisible(rows[n-1].XID, string(values[2]))
		if err != nil {
			return err
		}
		out[n-1] = Invisible
		if visible {
			out[n-1] = Removed
		}
	case string(values[1]) == "t":
		out[n-1] = Marked
	default:
		out[n-1] = Locked
	}
	return nil
}
