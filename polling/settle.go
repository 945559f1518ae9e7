package polling

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"walrelay/checkpoint"
	"walrelay/internal/postgres"
)

// settle marks or deletes rows that Kafka has. Those that are locked are left for later, and are no part
// of a poll until they are settled.
func (x *session) settle(ctx context.Context, rows []checkpoint.Pending, done *atomic.Int64) error {
	for len(rows) > 0 {
		part := rows[:min(len(rows), settleBatch)]
		rows = rows[len(part):]
		limited, end := postgres.Limited(ctx)
		outcomes, err := x.settler.Settle(limited, part, x.outcomes[:0])
		end()
		x.outcomes = outcomes
		if err != nil {
			return err
		}
		x.spoke = time.Now()
		n := 0
		for i, p := range part {
			switch outcomes[i] {
			case checkpoint.Locked:
				x.unsettled = append(x.unsettled, p)
				continue
			case checkpoint.Removed, checkpoint.Invisible: // it was visible when it was read
				x.removed(p.Row)
			}
			n++
		}
		x.metrics.Settled.Add(float64(n))
		x.past.settled += uint64(n)
		if done != nil {
			done.Add(int64(len(part)))
		}
	}
	x.update(func(st *State) { st.unsettled = len(x.unsettled) })
	return nil
}

// settleAgain tries the rows that were locked.
func (x *session) settleAgain(ctx context.Context) error {
	rows := x.unsettled
	x.unsettled = nil
	if err := x.settle(ctx, rows, nil); err != nil {
		return err
	}
	if len(x.unsettled) < len(rows) {
		x.rest = retryMin
	}
	x.retry, x.rest = time.Now().Add(x.rest), min(2*x.rest, retryMax)
	return nil
}

// settleRest is the end of a session in order: nobody else knows that Kafka has these rows.
func (x *session) settleRest(hard context.Context) error {
	if len(x.unsettled) > 0 {
		x.log.Info("stopping: waiting for rows that are locked", "unsettled", len(x.unsettled))
	}
	for len(x.unsettled) > 0 {
		if err := x.settleAgain(hard); err != nil {
			return err
		}
		if len(x.unsettled) == 0 {
			break
		}
		if err := postgres.Sleep(hard, time.Until(x.retry)); err != nil {
			return fmt.Errorf("%d published rows are locked and could not be settled: they are sent again after the next start", len(x.unsettled))
		}
	}
	return nil
}

// removed counts a row that its application has deleted, and says so once.
func (x *session) removed(row checkpoint.Row) {
	x.metrics.Removed.Inc()
	if !x.saidRemoved {
		x.saidRemoved = true
		x.log.Warn("the application removes rows itself: one that is removed before it was polled is never published",
			"table", x.Table.String(), "row", row.RowID, "event_id", row.EventID.String())
	}
}
