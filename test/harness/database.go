package harness

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// dropLimit bounds the end of one database: ending its sessions, dropping its slots and itself.
const dropLimit = 30 * time.Second

// Database is a fresh, empty database. It is dropped when the test ends, with its slots, its
// prepared transactions and whatever is still connected to it.
type Database struct {
	Server *Server
	Name   string
}

// Database makes a database for the test.
func (s *Server) Database(t testing.TB) *Database {
	t.Helper()
	db := &Database{Server: s, Name: Name(t)}
	run(t, s.URL("postgres"), "CREATE DATABASE "+pgx.Identifier{db.Name}.Sanitize())
	t.Cleanup(func() {
		if s.own != nil && !s.own.Running() {
			return // the test stopped its server; the data goes with it
		}
		ctx, cancel := context.WithTimeout(context.Background(), dropLimit)
		defer cancel()
		if err := db.drop(ctx); err != nil {
			t.Errorf("drop database %s: %v", db.Name, err)
		}
	})
	return db
}

// URL connects over TCP, as DATABASE_URL takes it.
func (db *Database) URL() string { return db.Server.URL(db.Name) }

// SocketURL connects over the unix socket, as DATABASE_URL takes it.
func (db *Database) SocketURL() string { return db.Server.SocketURL(db.Name) }

// Connect opens a connection that the test's end closes.
func (db *Database) Connect(t testing.TB) *pgx.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, db.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		conn.Close(ctx) // the server may be gone: nothing of it matters any more
	})
	return conn
}

// Exec runs statements, separated by semicolons, on a connection of their own.
func (db *Database) Exec(t testing.TB, sql string) {
	t.Helper()
	run(t, db.URL(), sql)
}

// Text is the first column of the first row as text; "" for NULL.
func (db *Database) Text(t testing.TB, sql string) string {
	t.Helper()
	results := run(t, db.URL(), sql)
	last := results[len(results)-1]
	if len(last.Rows) == 0 {
		t.Fatalf("%s: no rows", sql)
	}
	return string(last.Rows[0][0])
}

// Eventually asks every 20 ms until the first column of the first row is want. Both outcomes are
// bounded by the context; the last answer is in the failure.
func (db *Database) Eventually(ctx context.Context, t testing.TB, want, sql string) {
	t.Helper()
	for {
		got := db.Text(t, sql)
		if got == want {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%s: still %q, want %q: %v", sql, got, want, ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// run uses the simple protocol, which takes several statements and answers in text.
func run(t testing.TB, url, sql string) []*pgconn.Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	conn, err := pgconn.Connect(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	results, err := conn.Exec(ctx, sql).ReadAll()
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return results
}

func (db *Database) drop(ctx context.Context) error {
	if err := db.rollBackPrepared(ctx); err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, db.Server.URL("postgres"))
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	// No new session, the old ones ended: only then do slots stay free for dropping.
	if _, err := conn.Exec(ctx, "ALTER DATABASE "+pgx.Identifier{db.Name}.Sanitize()+" ALLOW_CONNECTIONS false"); err != nil {
		return fmt.Errorf("close it to new sessions: %w", err)
	}
	for {
		if _, err := conn.Exec(ctx, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1", db.Name); err != nil {
			return fmt.Errorf("end its sessions: %w", err)
		}
		_, err := conn.Exec(ctx, "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = $1", db.Name)
		if err == nil {
			break
		}
		var inUse *pgconn.PgError
		if !errors.As(err, &inUse) || inUse.Code != "55006" { // object_in_use: its walsender is still on its way out
			return fmt.Errorf("drop its slots: %w", err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("drop its slots: %w", err)
		case <-time.After(10 * time.Millisecond):
		}
	}
	if _, err := conn.Exec(ctx, "DROP DATABASE "+pgx.Identifier{db.Name}.Sanitize()+" WITH (FORCE)"); err != nil {
		return fmt.Errorf("drop it: %w", err)
	}
	return nil
}

// rollBackPrepared ends what would keep the database from being dropped, and every other test's
// slot from being created.
func (db *Database) rollBackPrepared(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, db.URL())
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	rows, err := conn.Query(ctx, "SELECT format('ROLLBACK PREPARED %L', gid) FROM pg_prepared_xacts WHERE database = current_database()")
	if err != nil {
		return fmt.Errorf("look for prepared transactions: %w", err)
	}
	statements, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return fmt.Errorf("look for prepared transactions: %w", err)
	}
	for _, sql := range statements {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
	}
	return nil
}
