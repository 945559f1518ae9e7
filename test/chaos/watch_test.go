package chaos

import (
	"context"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
)

const (
	lookInterval = 200 * time.Millisecond
	lookLimit    = 5 * time.Second // of one look: the table may be locked, the server away
	maxLooks     = 20              // that wait for the slot; it may not move for long
)

// look is what was unmarked at a moment.
type look struct {
	rows []int64
	lsn  pglogrepl.LSN // every one of them was committed before this position
}

// watch holds the slot's position against the table all the while: when the slot has confirmed a
// position, every row that was committed before it is marked. It goes on through restarts.
func (w *world) watch(ctx context.Context) error {
	for ctx.Err() == nil {
		w.watchOnce(ctx)
		select {
		case <-ctx.Done():
		case <-time.After(lookInterval):
		}
	}
	return nil
}

// watchOnce looks until something fails, which is the server's or the run's end.
func (w *world) watchOnce(ctx context.Context) {
	conn, err := pgx.Connect(ctx, w.f.DB.URL())
	if err != nil {
		return
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		conn.Close(closing)
	}()
	var open []look // which the slot has not confirmed yet, oldest first
	for {
		if open, err = w.look(ctx, conn, open); err != nil {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(lookInterval):
		}
	}
}

// look compares with the looks before, and adds one. The order of its statements matters: the position is
// read before the rows that it must have left behind, and the next position after the rows that are to come.
func (w *world) look(ctx context.Context, conn *pgx.Conn, open []look) ([]look, error) {
	ctx, cancel := context.WithTimeout(ctx, lookLimit)
	defer cancel()
	var slot pglogrepl.LSN // 0: there is none
	if err := conn.QueryRow(ctx, "SELECT coalesce(max(confirmed_flush_lsn), '0/0')::text FROM pg_replication_slots WHERE slot_name = $1", w.f.Slot).Scan(&slot); err != nil {
		return nil, err
	}
	for len(open) > 0 && open[0].lsn <= slot {
		left, err := w.unmarked(ctx, conn, "id = ANY ($1)", open[0].rows)
		if err != nil {
			return nil, err
		}
		if len(left) > 0 {
			w.broke(noEarlyAck, "the slot has confirmed %s, rows committed before %s are not marked: %v", slot, open[0].lsn, left[:min(len(left), 5)])
		}
		w.mu.Lock()
		w.mu.looks++
		w.mu.Unlock()
		open = open[1:]
	}
	if len(open) == maxLooks {
		return open, nil
	}
	rows, err := w.unmarked(ctx, conn, "$1::bigint[] IS NULL", nil)
	if err != nil {
		return nil, err
	}
	now := look{rows: rows}
	err = conn.QueryRow(ctx, "SELECT pg_current_wal_insert_lsn()::text").Scan(&now.lsn)
	return append(open, now), err
}

func (w *world) unmarked(ctx context.Context, conn *pgx.Conn, which string, ids []int64) ([]int64, error) {
	rows, err := conn.Query(ctx, "SELECT id FROM "+w.f.Table.SQL()+" WHERE published_at IS NULL AND "+which, ids)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[int64])
}
