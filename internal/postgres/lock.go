package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// LockRetry is how often a standby tries to become the leader. It never waits inside SQL: a waiting
// pg_advisory_lock would hold back the database's xmin horizon for as long (H5).
const LockRetry = time.Second

// lockNamespace keeps walrelay's keys apart from an application's own advisory locks ("wr" in ASCII).
const lockNamespace = 0x7772

// LockKey is the session advisory lock of one shard of one table: whoever holds it is the only relay
// that reads the shard, in either mode. The same for every relay, since it is made of the table's OID.
func LockKey(tableOID uint32, shard uint16) int64 {
	return lockNamespace<<48 | int64(tableOID)<<16 | int64(shard)
}

// AwaitLock returns once the lock looks free. A standby tries and releases on the SQL connection and
// opens a replication connection only when the try won.
func AwaitLock(ctx context.Context, conn *pgx.Conn, key int64, standby func()) error {
	for first := true; ; first = false {
		won, err := tryLock(ctx, conn, key)
		if won || err != nil {
			return err
		}
		if first {
			standby()
		}
		if err := Sleep(ctx, LockRetry); err != nil {
			return err
		}
	}
}

// tryLock takes the lock and gives it back at once.
func tryLock(ctx context.Context, conn *pgx.Conn, key int64) (won bool, err error) {
	ctx, done := Limited(ctx)
	defer done()
	if err := conn.QueryRow(ctx, "/* walrelay:lock */ SELECT pg_try_advisory_lock($1)", key).Scan(&won); err != nil {
		return false, fmt.Errorf("try the lock: %w", err)
	}
	if !won {
		return false, nil
	}
	if _, err := conn.Exec(ctx, "/* walrelay:unlock */ SELECT pg_advisory_unlock($1)", key); err != nil {
		return false, fmt.Errorf("give the lock back: %w", err)
	}
	return true, nil
}

// Sleep waits for d or until ctx ends.
func Sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// Absence is the time between two moments for the world outside. The monotonic clock stands still
// while the machine sleeps or its hypervisor has stopped it; the wall clock is put right when it wakes.
// One that somebody sets forward costs a new session and nothing else.
func Absence(from, to time.Time) time.Duration {
	return max(to.Sub(from), to.Round(0).Sub(from.Round(0)))
}
