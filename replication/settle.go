package replication

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pglogrepl"

	"walrelay/checkpoint"
	"walrelay/internal/postgres"
)

const (
	watchInterval = 5 * time.Second
	settleBatch   = 2000 // ids of one statement: large enough that its fixed cost does not matter

	// Acknowledged rows are left to gather for a moment: settling is off the latency path, and a
	// statement for each single event would cost the database more than the events do.
	settlePause = 20 * time.Millisecond

	// How long rows that could not be settled rest: not visible yet (microseconds, as a rule) or
	// locked by the application.
	retryMin = time.Millisecond
	retryMax = 500 * time.Millisecond
)

// settleLoop settles what is acknowledged and watches the server. It is the only goroutine that
// touches the SQL connection.
func (x *session) settleLoop(ctx context.Context) error {
	var settler *checkpoint.Settler // nil in keep, where no row is ever pending
	if x.After != checkpoint.Keep {
		settler = checkpoint.NewSettler(x.sql, x.Table, x.Columns, x.After)
	}
	work := x.tracker.NewWaiter()
	watch := time.NewTicker(watchInterval)
	defer watch.Stop()
	if err := x.look(ctx); err != nil {
		return err
	}
	var (
		pending  []checkpoint.Pending
		outcomes []checkpoint.Outcome
		after    uint64 // the walk over the pending rows has come to this token
		left     bool   // it has passed rows that could not be settled
		rest     = retryMin
	)
	for ctx.Err() == nil {
		work.Arm()
		pending = x.tracker.PendingAfter(pending[:0], after, settleBatch)
		if len(pending) == 0 {
			pause := time.Duration(-1)
			if left {
				pause, rest = rest, min(2*rest, retryMax)
			}
			if err := x.idleUntil(ctx, work, watch.C, pause); err != nil {
				return err
			}
			after, left = 0, false
			continue
		}
		var err error
		limit, done := postgres.Limited(ctx)
		outcomes, err = settler.Settle(limit, pending, outcomes[:0])
		done()
		if err != nil {
			return fmt.Errorf("settle %d rows: %w", len(pending), err)
		}
		x.remember(pending, outcomes)
		n, err := x.account(pending, outcomes)
		if err != nil {
			return err
		}
		if n > 0 {
			rest = retryMin
		}
		left = left || n < len(pending)
		after = pending[len(pending)-1].Token
		select {
		case <-watch.C:
			if err := x.look(ctx); err != nil {
				return err
			}
		default:
		}
	}
	return ctx.Err()
}

// idleUntil waits for acknowledged rows, for the end of pause where it is not negative, or for the
// next look at the server, which it takes.
func (x *session) idleUntil(ctx context.Context, work *checkpoint.Waiter, watch <-chan time.Time, pause time.Duration) error {
	var rested <-chan time.Time
	if pause >= 0 {
		timer := time.NewTimer(pause)
		defer timer.Stop()
		rested = timer.C
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-rested:
		return nil
	case <-watch:
		return x.look(ctx)
	case <-work.C:
		if x.tracker.Unsettled() >= settleBatch {
			return nil
		}
		return postgres.Sleep(ctx, settlePause)
	}
}

// account tells the tracker what has become of the rows and returns how many are settled.
func (x *session) account(pending []checkpoint.Pending, outcomes []checkpoint.Outcome) (settled int, err error) {
	for i, p := range pending {
		switch outcomes[i] {
		case checkpoint.Locked, checkpoint.Invisible:
			continue
		case checkpoint.Removed:
			if fresh := x.fresh.Load(); fresh != 0 && p.Token >= fresh {
				x.removed(p.Row)
			}
		}
		if err := x.tracker.Settled(p.Token); err != nil {
			return settled, err
		}
		settled++
	}
	x.metrics.Settled.Add(float64(settled))
	return settled, nil
}

// removed counts a row that its application has deleted, and says so once: such a table cannot be
// polled when the stream is lost (H12).
func (x *session) removed(row checkpoint.Row) {
	x.metrics.Removed.Inc()
	if x.saidRemoved.CompareAndSwap(false, true) {
		x.log.Warn("the application removes rows itself: they are published from the stream, but should the slot ever be lost they are lost with it",
			"table", x.Table.String(), "row", row.RowID, "event_id", row.EventID.String())
	}
}

// look runs the watch statement and ends the session where the stream can no longer be trusted. A
// table that somebody has locked is looked at again the next time; no keepalive is confirmed until then.
func (x *session) look(ctx context.Context) error {
	w, err := x.watch(ctx, x.sql)
	if postgres.Locked(err) {
		x.trusted.Store(false)
		return nil
	}
	if err != nil {
		return err
	}
	x.update(func(st *State) { st.Watch = w })
	if err := checkSync(w); err != nil {
		return err
	}
	if err := x.checkPublication(w, x.server.TableOID); err != nil {
		x.trusted.Store(false)
		return err
	}
	if w.ActivePID != x.pid {
		return errWalsender
	}
	x.trusted.Store(true)
	if w.SafeWALSize < 0 && w.WALStatus != "" && w.WALStatus != "lost" && !x.saidUnlimited.Swap(true) {
		x.log.Warn("the server keeps WAL for this slot without a limit: while no relay runs, it can fill the disk",
			"remedy", "ALTER SYSTEM SET max_slot_wal_keep_size = '10GB'; SELECT pg_reload_conf()")
	}
	return nil
}

// keepalive takes the server's word that it has sent everything up to a position. Outside a
// transaction, with nothing in flight and nothing unsettled, that is as good as the end of an empty
// transaction, so that an idle outbox on a busy server holds back no WAL (FACTS A2).
func (x *session) keepalive(msg []byte) error {
	end, reply, err := parseKeepalive(msg)
	if err != nil {
		return err
	}
	if !x.tracker.InTransaction() {
		if err := x.resume.idle(end); err != nil {
			return err
		}
	}
	x.received, x.idle = max(x.received, end), end
	if x.trusted.Load() {
		x.tracker.Idle(end)
	}
	if !reply {
		return nil
	}
	x.watchFlood(end)
	if time.Since(x.told) < replyPace {
		x.owes = true
		return x.setDeadline()
	}
	return x.tick()
}

// watchFlood notices a server that wants to stop. A walsender waits, for ever if need be, until its
// client has confirmed everything, and asks again with every answer; so a Kafka outage would keep the
// server from restarting. Kafka gets a bounded grace, then the session leaves (H24).
func (x *session) watchFlood(end pglogrepl.LSN) {
	f := &x.flood
	if x.tracker.Confirmable() >= end || end != f.end {
		f.end, f.count, f.until = end, 0, time.Time{}
	}
	if f.count++; f.count == floodSize {
		f.until = time.Now().Add(grace)
		x.log.Warn("PostgreSQL wants to stop and waits for this relay: leaving soon", "grace", grace, "in_flight", x.tracker.InFlight())
	}
}
