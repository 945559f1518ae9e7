package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/caarlos0/env/v11"
	"github.com/jackc/pgx/v5"

	"walrelay/migrations"
	"walrelay/outbox"
)

const publication = "walrelay"

// database is one with the schema of walrelay, for one section.
type database struct {
	*bench
	name string
	conn *pgx.Conn
}

// sockets are the two ways to the server.
var sockets = []string{"TCP", "unix"}

func (b *bench) database(ctx context.Context, name string) (d *database, err error) {
	if err := execute(ctx, b.pg.SocketURL("postgres"), "CREATE DATABASE "+name); err != nil {
		return nil, err
	}
	d = &database{bench: b, name: name}
	if d.conn, err = pgx.Connect(ctx, b.pg.SocketURL(name)); err != nil {
		return nil, fmt.Errorf("connect to database %s: %w", name, err)
	}
	options, err := defaultOptions()
	if err != nil {
		return nil, err
	}
	if _, err := migrations.Up(ctx, d.conn, options); err != nil {
		return nil, fmt.Errorf("migrate database %s: %w", name, err)
	}
	return d, nil
}

// defaultOptions are the names that everything has by default.
func defaultOptions() (migrations.Options, error) {
	var cfg outbox.Config
	if err := env.ParseWithOptions(&cfg, env.Options{Environment: map[string]string{}}); err != nil {
		return migrations.Options{}, err
	}
	table, err := outbox.ParseTable(cfg.Table)
	return migrations.Options{Table: table, Columns: cfg.Columns, Publication: publication}, err
}

// url connects over TCP or over the unix socket.
func (d *database) url(socket string) string {
	if socket == "unix" {
		return d.pg.SocketURL(d.name)
	}
	return d.pg.URL(d.name)
}

// close drops the slots, so that their WAL can go, and the database.
func (d *database) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	_, err := d.conn.Exec(ctx, `SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active AND database = current_database()`)
	for err == nil {
		var active bool
		err = d.conn.QueryRow(ctx, `SELECT coalesce(bool_or(active), false) FROM pg_replication_slots WHERE database = current_database()`).Scan(&active)
		if !active {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	if err == nil {
		_, err = d.conn.Exec(ctx, `SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = current_database()`)
	}
	err = errors.Join(err, d.conn.Close(ctx))
	if err == nil {
		err = execute(ctx, d.pg.SocketURL("postgres"), "DROP DATABASE "+d.name+" WITH (FORCE)", "CHECKPOINT")
	}
	if err != nil {
		return fmt.Errorf("drop database %s: %w", d.name, err)
	}
	return nil
}

func execute(ctx context.Context, url string, statements ...string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	for _, sql := range statements {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
	}
	return nil
}

// slots makes slots that begin at one place: before what is filled in next.
func (d *database) slots(ctx context.Context, names ...string) error {
	for _, name := range names {
		if _, err := d.conn.Exec(ctx, "SELECT pg_create_logical_replication_slot($1, 'pgoutput')", d.slot(name)); err != nil {
			return fmt.Errorf("create slot %s: %w", d.slot(name), err)
		}
	}
	return nil
}

// slot is unique in the server: slots are not of a database by name.
func (d *database) slot(name string) string { return d.name + "_" + name }

// insertSQL makes rows with about 300 bytes of jsonb and 1,000 keys.
const insertSQL = `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload)
SELECT 'order', 'customer-' || n % 1000, 'OrderCreated', jsonb_build_object(
  'order_id', n, 'customer', jsonb_build_object('id', 'customer-' || n % 1000, 'email', left(md5(n::text), 12) || '@example.org'),
  'lines', jsonb_build_array(
     jsonb_build_object('sku', left(md5((n * 7)::text), 8), 'quantity', n % 9 + 1, 'price', 19.90),
     jsonb_build_object('sku', left(md5((n * 11)::text), 8), 'quantity', n % 5 + 1, 'price', 4.50)),
  'currency', 'EUR', 'total', (n % 90000) / 100.0, 'placed_at', '2026-11-30T10:00:00Z', 'note', 'please ring twice')
FROM generate_series({first}, {last}) n`

func insert(first, last string) string {
	return strings.NewReplacer("{first}", first, "{last}", last).Replace(insertSQL)
}

// fill commits rows in transactions of so many rows, from inside the server. It says what was written.
func (d *database) fill(ctx context.Context, rows, perTransaction int) error {
	began := time.Now()
	sql := fmt.Sprintf("DO $$ BEGIN FOR i IN 1..%d BY %d LOOP ", rows, perTransaction) +
		insert("i", fmt.Sprintf("least(i + %d, %d)", perTransaction-1, rows)) + "; COMMIT; END LOOP; END $$"
	// Without waiting for the disk at each commit: the fill is not what is measured.
	for _, statement := range []string{"SET synchronous_commit = off", sql, "RESET synchronous_commit", "VACUUM (ANALYZE) outbox", "CHECKPOINT"} {
		if _, err := d.conn.Exec(ctx, statement); err != nil {
			return fmt.Errorf("fill the backlog: %w", err)
		}
	}
	var payload float64
	var wal string
	err := d.conn.QueryRow(ctx, `SELECT (SELECT avg(octet_length(payload::text))::float8 FROM (SELECT payload FROM outbox LIMIT 1000) t),
		coalesce(pg_size_pretty(pg_wal_lsn_diff(pg_current_wal_lsn(), (SELECT min(confirmed_flush_lsn) FROM pg_replication_slots))), 'nothing')`).Scan(&payload, &wal)
	if err != nil {
		return fmt.Errorf("look at the backlog: %w", err)
	}
	d.say("%d rows in transactions of %d, %.0f bytes of jsonb each, %s of WAL for a slot, in %.1f s", rows, perTransaction, payload, wal, time.Since(began).Seconds())
	return nil
}

// settled waits until the row is marked, or gone. It is the last one, and rows are settled oldest
// first.
func (d *database) settled(ctx context.Context, id int64, after string) (time.Time, error) {
	for {
		var open bool
		err := d.conn.QueryRow(ctx, `SELECT EXISTS (SELECT FROM outbox WHERE id = $1 AND ($2 OR published_at IS NULL))`, id, after == "delete").Scan(&open)
		if err != nil {
			return time.Time{}, fmt.Errorf("look whether row %d is settled: %w", id, err)
		}
		if !open {
			return time.Now(), nil
		}
		select {
		case <-ctx.Done():
			return time.Time{}, fmt.Errorf("row %d is not settled: %w", id, ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// lastRow is the id of the youngest row.
func (d *database) lastRow(ctx context.Context) (id int64, err error) {
	if err := d.conn.QueryRow(ctx, `SELECT max(id) FROM outbox`).Scan(&id); err != nil {
		return 0, fmt.Errorf("look for the last row: %w", err)
	}
	return id, nil
}
