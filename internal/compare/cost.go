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

// counters are those of the server at one moment.
type counters struct{ transactions, updated, dead, wal int64 }

// statsPause is how long a backend may keep its counts to itself (PGSTAT_MIN_INTERVAL and more).
const statsPause = 1200 * time.Millisecond

func (m *measurement) cost(ctx context.Context) (c counters, err error) {
	if err := until(ctx, time.Now().Add(statsPause)); err != nil {
		return c, err
	}
	// Dead tuples are counted by what makes them: a vacuum may come by before we look.
	err = m.conn.QueryRow(ctx, `SELECT (SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()),
		coalesce(sum(n_tup_upd), 0)::bigint, coalesce(sum(n_tup_upd + n_tup_del), 0)::bigint, pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint
		FROM pg_stat_user_tables WHERE schemaname = $1 AND relname = $2`, m.table.Schema, m.table.Name).
		Scan(&c.transactions, &c.updated, &c.dead, &c.wal)
	if err != nil {
		return c, fmt.Errorf("read the server's counters: %w", err)
	}
	return c, nil
}

// spent is what was counted since, for each event.
func (m *measurement) spent(ctx context.Context, before counters, events int) (Cost, error) {
	after, err := m.cost(ctx)
	per := func(a, b int64) float64 { return float64(a-b) / float64(max(1, events)) }
	return Cost{
		Transactions: per(after.transactions, before.transactions), Updated: per(after.updated, before.updated),
		Dead: per(after.dead, before.dead), WAL: per(after.wal, before.wal),
	}, err
}
