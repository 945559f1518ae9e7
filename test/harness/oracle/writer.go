package oracle

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"walrelay/outbox"
	"walrelay/test/harness"
)

// Journal is told of every transaction of a Writer, by the Writer's goroutine.
type Journal interface {
	// Committing comes before COMMIT is sent, and what it notes must be safe when it returns. After an
	// error the transaction is rolled back.
	Committing(events []Event, rows []Committed) error
	// Ended comes when it is known what has become of the transaction. It is not called for one that
	// failed before Committing.
	Ended(rows []Committed, outcome Outcome) error
}

// Outcome is how a transaction ended.
type Outcome struct {
	Committed  bool
	Unanswered bool // the session ended in place of an answer to COMMIT: the server was asked later
}

// ErrUnknown: the oracle can no longer tell what must be on Kafka; the test has no verdict.
var ErrUnknown = errors.New("whether the transaction has committed is not known")

// resolveLimit bounds the question whether a commit happened whose answer was lost; the server may
// have to come back first.
const resolveLimit = 2 * time.Minute

// Event is one row to be written. The zero value of a field other than the first three is NULL.
type Event struct {
	AggregateType, AggregateID, EventType string
	Payload                               string // JSON
	Headers                               string // JSON object
	Topic, PartitionKey                   string
}

func (e Event) key() string {
	if e.PartitionKey != "" {
		return e.PartitionKey
	}
	return e.AggregateID
}

// Writer inserts outbox rows as a service does and keeps what was committed, also when the answer to
// a COMMIT was lost: each transaction leaves a row in a table of the writer's, which nobody deletes,
// and that row is asked for. One Writer is one connection; keys of different writers must differ,
// for the order of a key is the order of one writer's transactions.
type Writer struct {
	url   string // to write
	asks  string // to ask what has become of a transaction
	table string // quoted
	conn  *pgx.Conn
	busy  sync.Mutex // by a transaction; the end of a test that has failed waits for it

	journal Journal // nil: none

	mu struct {
		sync.Mutex
		committed []Committed
	}
}

// Table of the writers' own, one row per transaction.
const witness = "oracle_transactions"

// NewWriter writes to a table of the native shape. The test's end closes its connection.
func NewWriter(t testing.TB, db *harness.Database, table outbox.Table) *Writer {
	t.Helper()
	db.Exec(t, "SELECT pg_advisory_lock(1); CREATE TABLE IF NOT EXISTS "+witness+" (id uuid PRIMARY KEY)")
	w := &Writer{url: db.URL(), asks: db.URL(), table: table.SQL()}
	t.Cleanup(func() {
		w.busy.Lock()
		defer w.busy.Unlock()
		w.disconnect()
	})
	return w
}

// Keep has the journal told of every transaction from now on.
func (w *Writer) Keep(j Journal) { w.journal = j }

// Through has it write by another URL of the same database, such as one of a proxy.
func (w *Writer) Through(url string) { w.url = url }

// Committed is what was committed so far, in order.
func (w *Writer) Committed() []Committed {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]Committed(nil), w.mu.committed...)
}

// Commit writes the events in one transaction. An error means that they are not committed and never
// will be; the next call connects anew.
func (w *Writer) Commit(ctx context.Context, events ...Event) error {
	return w.transact(ctx, events, func(ctx context.Context, tx pgx.Tx) ([]Committed, error) { return w.insert(ctx, tx, events) })
}

// CommitWhen writes the events in one transaction, which stays open until ready is closed.
func (w *Writer) CommitWhen(ctx context.Context, ready <-chan struct{}, events ...Event) error {
	return w.transact(ctx, events, func(ctx context.Context, tx pgx.Tx) ([]Committed, error) {
		rows, err := w.insert(ctx, tx, events)
		select {
		case <-ready:
		case <-ctx.Done():
			err = errors.Join(err, ctx.Err())
		}
		return rows, err
	})
}

// Savepoint writes kept, then rolledBack behind a savepoint that it rolls back, and commits.
func (w *Writer) Savepoint(ctx context.Context, kept, rolledBack []Event) error {
	return w.transact(ctx, kept, func(ctx context.Context, tx pgx.Tx) ([]Committed, error) {
		rows, err := w.insert(ctx, tx, kept)
		if err != nil {
			return nil, err
		}
		inner, err := tx.Begin(ctx)
		if err != nil {
			return nil, fmt.Errorf("savepoint: %w", err)
		}
		if _, err := w.insert(ctx, inner, rolledBack); err != nil {
			return nil, err
		}
		return rows, inner.Rollback(ctx)
	})
}

// transact runs one transaction and keeps its rows, those of events, when it has committed.
func (w *Writer) transact(ctx context.Context, events []Event, write func(context.Context, pgx.Tx) ([]Committed, error)) error {
	w.busy.Lock()
	defer w.busy.Unlock()
	tx, err := w.begin(ctx)
	if err != nil {
		return err
	}
	id := newID()
	rows, err := write(ctx, tx)
	if err == nil {
		_, err = tx.Exec(ctx, "INSERT INTO "+witness+" VALUES ($1)", id)
	}
	if err == nil && w.journal != nil {
		err = w.journal.Committing(events, rows)
	}
	if err != nil {
		w.disconnect() // without a COMMIT the server rolls back
		return fmt.Errorf("write: %w", err)
	}
	return w.commit(ctx, tx, id, rows)
}

// begin takes a new connection where the one of the last transaction has died meanwhile, as a pool does.
func (w *Writer) begin(ctx context.Context) (pgx.Tx, error) {
	for {
		kept := w.conn != nil
		if !kept {
			conn, err := pgx.Connect(ctx, w.url)
			if err != nil {
				return nil, fmt.Errorf("connect: %w", err)
			}
			w.conn = conn
		}
		tx, err := w.conn.Begin(ctx)
		if err == nil {
			return tx, nil
		}
		w.disconnect()
		if !kept {
			return nil, fmt.Errorf("begin: %w", err)
		}
	}
}

func (w *Writer) commit(ctx context.Context, tx pgx.Tx, id outbox.EventID, rows []Committed) error {
	outcome := Outcome{Committed: true}
	err := tx.Commit(ctx)
	if err != nil {
		w.disconnect()
		happened, unknown := w.happened(id)
		if unknown != nil {
			return fmt.Errorf("commit: %w: %w: %w", err, ErrUnknown, unknown)
		}
		refusal, answered := errors.AsType[*pgconn.PgError](err)
		outcome = Outcome{Committed: happened, Unanswered: !answered || refusal.SeverityUnlocalized != "ERROR"}
	}
	if w.journal != nil {
		if err := w.journal.Ended(rows, outcome); err != nil {
			return fmt.Errorf("note the outcome: %w", err)
		}
	}
	if !outcome.Committed {
		return fmt.Errorf("commit: %w", err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.committed = append(w.mu.committed, rows...)
	return nil
}

// happened says whether the transaction has committed, and makes sure that it never will if not: an
// insert of the same witness waits for a transaction that is still on its way, then either collides
// with it or takes its place.
func (w *Writer) happened(id outbox.EventID) (bool, error) {
	ctx, cancel := context.WithTimeout(context.Background(), resolveLimit)
	defer cancel()
	for {
		inserted, err := w.claim(ctx, id)
		if err == nil {
			return !inserted, nil
		}
		select {
		case <-ctx.Done():
			return false, err
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (w *Writer) claim(ctx context.Context, id outbox.EventID) (inserted bool, err error) {
	conn, err := pgx.Connect(ctx, w.asks)
	if err != nil {
		return false, fmt.Errorf("connect: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	tag, err := conn.Exec(ctx, "INSERT INTO "+witness+" VALUES ($1) ON CONFLICT DO NOTHING", id)
	if err != nil {
		return false, fmt.Errorf("ask for the transaction: %w", err)
	}
	return tag.RowsAffected() == 1, nil
}

func (w *Writer) insert(ctx context.Context, tx pgx.Tx, events []Event) ([]Committed, error) {
	sql := "INSERT INTO " + w.table + " (event_id, aggregate_type, aggregate_id, event_type, payload, headers, topic, partition_key) " +
		"VALUES ($1, $2, $3, $4, nullif($5::text, '')::jsonb, nullif($6::text, '')::jsonb, nullif($7::text, ''), nullif($8::text, '')) RETURNING id"
	rows := make([]Committed, len(events))
	batch := &pgx.Batch{}
	for i, e := range events {
		rows[i] = Committed{EventID: newID(), Key: e.key()}
		batch.Queue(sql, rows[i].EventID, e.AggregateType, e.AggregateID, e.EventType, e.Payload, e.Headers, e.Topic, e.PartitionKey).
			QueryRow(func(row pgx.Row) error { return row.Scan(&rows[i].RowID) })
	}
	if err := tx.SendBatch(ctx, batch).Close(); err != nil {
		return nil, fmt.Errorf("insert: %w", err)
	}
	return rows, nil
}

// disconnect lets the server's session go without waiting for the server, which may be stopped.
func (w *Writer) disconnect() {
	if w.conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	w.conn.Close(ctx)
	w.conn = nil
}

func newID() (id outbox.EventID) {
	rand.Read(id[:]) // never fails
	id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80
	return id
}
