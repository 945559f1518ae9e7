package polling

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"walrelay/checkpoint"
	"walrelay/decoder"
	"walrelay/internal/postgres"
	"walrelay/internal/source"
)

const (
	// idleTimeout is after how long without a word the server ends the connection, and the lock with it:
	// what a standby waits for where the leader's host is gone.
	idleTimeout = 15 * time.Second

	// pingEvery keeps the connection and finds out when it is dead, also while Kafka is waited for.
	pingEvery = idleTimeout / 3

	// lease is how long after the server's last answer a row may still be handed over. It ends well before
	// another relay can have the lock.
	lease = 2 * pingEvery

	// unsettledLimit bounds the rows that Kafka has and that are locked in the table. Above it nothing is
	// read until some are settled (H17).
	unsettledLimit = 16384

	// How long rows that could not be settled rest.
	retryMin = 10 * time.Millisecond
	retryMax = 500 * time.Millisecond

	settleBatch = 2000 // ids of one statement
)

// errLease: the process, or the connection, stood still for so long that another relay may lead.
var errLease = errors.New("the process was stopped for longer than its lease: another relay may have taken over")

// Expired says that a session ended because its lease was over.
func Expired(err error) bool { return errors.Is(err, errLease) }

// session is one life of the connection that holds the lock. Everything in it belongs to one goroutine.
type session struct {
	*Source
	conn    *pgx.Conn
	heard   *bool // a notification has come since the last poll began
	pid     uint32
	table   uint32 // OID; the lock's
	deaf    bool
	rows    *decoder.Rows
	settler *checkpoint.Settler

	spoke     time.Time     // last answer of the server
	took      time.Duration // of the last poll
	text      text          // kept between batches
	unsettled []checkpoint.Pending
	outcomes  []checkpoint.Outcome
	retry     time.Time // when the unsettled rows are tried again
	rest      time.Duration
}

// lead takes the lock of the table, however long that takes, on the connection that works. It never
// waits inside SQL: that would hold back the database's xmin horizon for as long (H5).
func (x *session) lead(ctx context.Context, table uint32) error {
	x.table = table
	key := postgres.LockKey(table, 0)
	for first := true; ; first = false {
		won, err := x.takeLock(ctx, key)
		if won || err != nil {
			return err
		}
		if first {
			x.phase(PhaseStandby)
			x.log.Info("standby: another relay holds the lock of this table", "table", x.Table.String())
		}
		if err := postgres.Sleep(ctx, postgres.LockRetry); err != nil {
			return err
		}
	}
}

func (x *session) takeLock(ctx context.Context, key int64) (won bool, err error) {
	ctx, done := postgres.Limited(ctx)
	defer done()
	if err := x.conn.QueryRow(ctx, "/* walrelay:lock */ SELECT pg_try_advisory_lock($1), pg_backend_pid()", key).Scan(&won, &x.pid); err != nil {
		return false, fmt.Errorf("take the lock: %w", err)
	}
	return won, nil
}

// prepare is all that is done once under the lock.
func (x *session) prepare(ctx context.Context, v postgres.Server) (err error) {
	x.phase(PhaseConnecting)
	if err = x.alone(ctx); err != nil {
		return err
	}
	if x.rows, err = decoder.NewRows(x.Table, x.Columns, v.Columns); err != nil {
		return &postgres.FatalError{Reason: err.Error()}
	}
	if err = x.indexed(ctx, v); err != nil {
		return err
	}
	if err = x.listen(ctx); err != nil {
		return err
	}
	limited, done := postgres.Limited(ctx)
	defer done()
	x.settler = checkpoint.NewSettler(x.conn, x.Table, x.Columns, x.After)
	if err = x.settler.Prepare(limited); err != nil {
		return err
	}
	if _, err = x.conn.Prepare(limited, pollName, querySQL(&x.Outbox, v, x.rows.Columns(), x.rowLimit)); err != nil {
		if postgres.Refused(err) {
			return x.Grant("SELECT", err)
		}
		return fmt.Errorf("prepare the poll: %w", err)
	}
	x.spoke, x.rest = time.Now(), retryMin
	return nil
}

// alone finds a pooler that gives one server connection to several clients in turn: the lock, LISTEN
// and prepared statements are of a connection. It shows itself by giving ours to a second client.
func (x *session) alone(ctx context.Context) error {
	other, err := postgres.Connect(ctx, x.Outbox.Database, idleTimeout)
	if err != nil {
		return err
	}
	defer other.Close(ctx)
	ctx, done := postgres.Limited(ctx)
	defer done()
	var pid uint32
	if err := other.QueryRow(ctx, "/* walrelay:pid */ SELECT pg_backend_pid()").Scan(&pid); err != nil {
		return fmt.Errorf("look for a pooler: %w", err)
	}
	if pid == x.pid {
		return pooled(x.Outbox.Database)
	}
	return nil
}

func pooled(db *pgx.ConnConfig) error {
	return &postgres.FatalError{
		Reason: fmt.Sprintf("%s:%d is a pooler that shares server connections between clients: a lock on one of them protects nothing", db.Host, db.Port),
		Remedy: "let DATABASE_URL lead to PostgreSQL itself, or to the pooler's session mode",
	}
}

// indexed warns once where no index has the unpublished rows in order.
func (x *session) indexed(ctx context.Context, v postgres.Server) error {
	if x.saidUnindexed || !v.HasMark {
		return nil
	}
	ctx, done := postgres.Limited(ctx)
	defer done()
	var found bool
	err := x.conn.QueryRow(ctx, `/* walrelay:index */
SELECT EXISTS (SELECT 1 FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
               WHERE i.indrelid = $1 AND i.indisvalid AND i.indpred IS NOT NULL AND a.attname = $2
                 AND pg_get_expr(i.indpred, i.indrelid) ILIKE '%' || quote_ident($3) || ' IS NULL%')`, x.table, x.Columns.ID, x.Columns.PublishedAt).Scan(&found)
	if err != nil {
		return fmt.Errorf("look for the index of unpublished rows: %w", err)
	}
	if !found {
		x.saidUnindexed = true
		id, mark := pgx.Identifier{x.Columns.ID}.Sanitize(), pgx.Identifier{x.Columns.PublishedAt}.Sanitize()
		x.log.Warn("no index has the unpublished rows in order: every poll reads past all that are published", "table", x.Table.String(),
			"remedy", fmt.Sprintf("CREATE INDEX CONCURRENTLY ON %s (%s) WHERE %s IS NULL", x.Table.SQL(), id, mark))
	}
	return nil
}

// run polls until soft ends or something breaks.
func (x *session) run(soft, hard context.Context) error {
	x.update(func(st *State) {
		st.Phase, st.Since, st.Heard, st.Deaf = PhasePolling, time.Now(), x.spoke, x.deaf
	})
	x.log.Info("polling", "table", x.Table.String(), "interval", x.cfg.Interval, "notify", !x.deaf)
	defer x.update(func(st *State) { st.batch, st.unsettled, st.Full = nil, 0, false })
	for soft.Err() == nil {
		more, err := x.turn(soft, hard)
		if err != nil {
			return err
		}
		x.update(func(st *State) { st.Heard = x.spoke })
		if more || soft.Err() != nil {
			continue
		}
		if err := x.pause(soft, hard); err != nil {
			return err
		}
	}
	return x.settleRest(hard)
}

// turn settles what is left, reads a batch and sees it through.
func (x *session) turn(soft, hard context.Context) (more bool, err error) {
	if len(x.unsettled) > 0 && !time.Now().Before(x.retry) {
		if err := x.settleAgain(hard); err != nil {
			return false, err
		}
	}
	if len(x.unsettled) >= unsettledLimit {
		return false, nil
	}
	b, more, err := x.poll(hard)
	if err != nil || b == nil {
		return false, err
	}
	x.update(func(st *State) { st.batch, st.Full = b, more })
	defer x.update(func(st *State) { st.batch, st.Full = nil, false })
	err = x.publish(b, soft, hard)
	if x.conn.IsClosed() || hard.Err() != nil {
		return false, errors.Join(err, hard.Err())
	}
	// Also where one event failed: what Kafka has in front of it must not be sent again.
	return more, errors.Join(err, x.settle(hard, b.prefix(nil), &b.settled))
}

// pause waits until the next poll is due. A poll that walks over many dead entries of the index, which
// a long transaction keeps, is given twice its time to rest.
func (x *session) pause(soft, hard context.Context) error {
	until := time.Now().Add(max(x.cfg.Interval, 2*x.took))
	for {
		d := time.Until(until)
		if len(x.unsettled) > 0 {
			d = min(d, time.Until(x.retry))
		}
		if d <= 0 || soft.Err() != nil || *x.heard {
			break
		}
		if err := x.wait(soft, min(d, pingEvery)); err != nil {
			return err
		}
		if time.Until(until) > 0 && time.Since(x.spoke) >= pingEvery {
			if err := x.ping(hard); err != nil {
				return err
			}
		}
	}
	return nil
}

// ping is a word to the server, which keeps the connection, and the proof that it is still ours.
func (x *session) ping(ctx context.Context) error {
	ctx, done := context.WithTimeout(ctx, pingEvery)
	defer done()
	var pid uint32
	if err := x.conn.QueryRow(ctx, "/* walrelay:ping */ SELECT pg_backend_pid()").Scan(&pid); err != nil {
		return fmt.Errorf("ping PostgreSQL: %w", err)
	}
	if pid != x.pid {
		return pooled(x.Outbox.Database)
	}
	x.spoke = time.Now()
	x.update(func(st *State) { st.Heard = x.spoke })
	return nil
}

// publish hands the batch over, row by row, and waits until Kafka has it. An error ends the session; what
// Kafka has by then is settled.
func (x *session) publish(b *batch, soft, hard context.Context) error {
	var err error
	for i := range b.rows {
		if b.failure.Load() != nil || soft.Err() != nil {
			break
		}
		if err = x.hand(b, i, soft, hard); err != nil {
			break
		}
	}
	if b.handed > 0 {
		x.pub.Hurry() // nothing else will come before Kafka has answered
	}
	if werr := x.await(b, hard, func() bool { return b.flight.Load() == 0 || b.failure.Load() != nil }); werr != nil {
		return errors.Join(werr, err)
	}
	if f := b.failure.Load(); f != nil {
		last := b.rows[b.handed-1].id
		return &source.PublishError{Row: last, Alone: x.past.alone != 0 && b.flight.Load() <= 1, Err: *f}
	}
	return err
}

// hand hands one row over.
func (x *session) hand(b *batch, i int, soft, hard context.Context) error {
	if postgres.Absence(x.spoke, time.Now()) > lease {
		return errLease
	}
	ev, err := x.rows.Row(b.row(i), b.rows[i].large)
	var fault *decoder.RowError
	switch {
	case errors.As(err, &fault):
		return &source.PoisonError{RowID: fault.RowID, EventID: fault.EventID, Err: fault}
	case err != nil:
		return err
	case b.rows[i].large:
		return &source.PoisonError{RowID: ev.RowID, EventID: ev.ID,
			Err: fmt.Errorf("payload and headers have more bytes than the limit of %d (four times KAFKA_MAX_MESSAGE_BYTES)", x.rowLimit)}
	}
	if x.past.alone != 0 && ev.RowID > x.past.alone {
		x.past.alone = 0
		x.log.Info("every event of the rejected batch is published")
	}
	for {
		b.hand(i, ev)
		if err = x.pub.Publish(ev, uint64(i), b); err == nil {
			break
		}
		b.back(i)
		if !errors.Is(err, source.ErrPending) {
			return &source.PoisonError{RowID: ev.RowID, EventID: ev.ID, Err: err}
		}
		// What is in flight may go on to be acknowledged meanwhile. A stopping relay leaves the row: its
		// topic may never come.
		x.pub.Hurry()
		if err := x.waitFor(b, hard, soft.Done(), x.pub.Wake()); err != nil {
			return err
		}
		if soft.Err() != nil || b.failure.Load() != nil {
			return nil
		}
	}
	b.handed = i + 1
	x.past.last = max(x.past.last, ev.RowID)
	x.metrics.Received.Inc()
	if x.past.alone == 0 {
		return nil
	}
	x.pub.Hurry()
	return x.await(b, hard, func() bool { return b.flight.Load() == 0 || b.failure.Load() != nil })
}

// await waits until what is so.
func (x *session) await(b *batch, hard context.Context, what func() bool) error {
	for !what() {
		if err := x.waitFor(b, hard, nil, nil); err != nil {
			return err
		}
	}
	return nil
}

// waitFor waits for an answer of Kafka's or for what else the caller names, and keeps the connection
// meanwhile. After a ping that fails nothing is handed over any more.
func (x *session) waitFor(b *batch, hard context.Context, stop, also <-chan struct{}) error {
	timer := time.NewTimer(pingEvery - min(pingEvery, time.Since(x.spoke)))
	defer timer.Stop()
	select {
	case <-hard.Done():
		return hard.Err()
	case <-b.answer:
	case <-stop:
	case <-also:
	case <-timer.C:
		return x.ping(hard)
	}
	return nil
}

func (x *session) close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	x.conn.Close(ctx)
}
