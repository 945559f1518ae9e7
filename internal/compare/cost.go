package compare

import (
	"context"
	"fmt"
	"time"
)

// Cost is what the database did, for the events of one measurement. Transactions and WAL are the whole
// server's, so that others who work on it are in them.
type Cost struct {
	Transactions float64 `json:"transactions_per_event"`
	Updated      float64 `json:"tuples_updated_per_event"`
	Dead         float64 `json:"dead_tuples_per_event"`
	WAL          float64 `json:"wal_bytes_per_event"`
}

// counters are those of the server at one moment. Backends hand in their counts when a transaction ends,
// but once a second at most, and else when they leave: so they are compared from before the relay has come
// to after it has gone.
type counters struct{ transactions, updated, dead int64 }

func (m *measurement) count(ctx context.Context) (c counters, err error) {
	// Dead tuples are counted by what makes them: a vacuum may come by before we look.
	err = m.conn.QueryRow(ctx, `SELECT (SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()),
		coalesce(sum(n_tup_upd), 0)::bigint, coalesce(sum(n_tup_upd + n_tup_del), 0)::bigint
		FROM pg_stat_user_tables WHERE schemaname = $1 AND relname = $2`, m.table.Schema, m.table.Name).
		Scan(&c.transactions, &c.updated, &c.dead)
	if err != nil {
		return c, fmt.Errorf("read the server's counters: %w", err)
	}
	return c, nil
}

// leaveTime is what a backend gets to leave and to hand in its counts.
const leaveTime = 500 * time.Millisecond

// spent is what was counted since, for each event.
func (m *measurement) spent(ctx context.Context, before counters) (Cost, error) {
	if err := until(ctx, time.Now().Add(leaveTime)); err != nil {
		return Cost{}, err
	}
	after, err := m.count(ctx)
	events := float64(max(1, m.journal.count()))
	return Cost{
		Transactions: float64(after.transactions-before.transactions) / events,
		Updated:      float64(after.updated-before.updated) / events, Dead: float64(after.dead-before.dead) / events,
	}, err
}

// position is where the server's WAL ends, in bytes.
func (m *measurement) position(ctx context.Context) (lsn int64, err error) {
	if err = m.conn.QueryRow(ctx, `SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint`).Scan(&lsn); err != nil {
		return 0, fmt.Errorf("read the end of the WAL: %w", err)
	}
	return lsn, nil
}
