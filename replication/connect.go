package replication

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"walrelay/internal/postgres"
)

const (
	// Bounds of wal_sender_timeout as the session sets it. Short, so that the slot of a dead host is
	// free soon; doubled when a server that decodes a huge transaction in silence ends the session at
	// the same place again and again (H23).
	minSenderTimeout = 15 * time.Second
	maxSenderTimeout = 5 * time.Minute
)

// connectReplication opens the connection that streams. It speaks SQL too, by simple queries.
func connectReplication(ctx context.Context, base *pgx.ConnConfig, senderTimeout time.Duration, notice func(*pgconn.Notice)) (*pgconn.PgConn, error) {
	cfg := base.Config.Copy()
	cfg.RuntimeParams["replication"] = "database"
	cfg.RuntimeParams["wal_sender_timeout"] = strconv.FormatInt(senderTimeout.Milliseconds(), 10)
	for _, timeout := range []string{"statement_timeout", "lock_timeout", "idle_session_timeout"} {
		cfg.RuntimeParams[timeout] = "0" // a role's own setting would end the stream
	}
	cfg.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) { notice(n) }
	conn, err := pgconn.ConnectConfig(ctx, cfg)
	if err != nil {
		return nil, postgres.ConnectError(base, err)
	}
	return conn, nil
}

// querySimple runs one statement by the simple protocol, the only one that a replication connection
// speaks, and returns its rows as text; NULL is the empty string.
func querySimple(ctx context.Context, conn *pgconn.PgConn, sql string) ([][]string, error) {
	ctx, done := postgres.Limited(ctx)
	defer done()
	results, err := conn.Exec(ctx, sql).ReadAll()
	if err != nil {
		return nil, err
	}
	var rows [][]string
	for _, result := range results {
		for _, row := range result.Rows {
			values := make([]string, len(row))
			for i, v := range row {
				values[i] = string(v)
			}
			rows = append(rows, values)
		}
	}
	return rows, nil
}

// takeLock takes the lock on the replication connection itself, so that lock, slot and stream die
// together. It does not wait.
func takeLock(ctx context.Context, conn *pgconn.PgConn, key int64) (bool, error) {
	rows, err := querySimple(ctx, conn, "/* walrelay:lock */ SELECT pg_try_advisory_lock("+strconv.FormatInt(key, 10)+")")
	if err != nil {
		return false, fmt.Errorf("take the lock: %w", err)
	}
	return len(rows) == 1 && rows[0][0] == "t", nil
}
