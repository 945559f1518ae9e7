package checkpoint

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"walrelay/outbox"
	"walrelay/test/harness"
)

// table is an outbox in a database of its own, with a settler.
type table struct {
	t       testing.TB
	db      *harness.Database
	app     *pgx.Conn // the application's
	settler *Settler
	rows    map[string]Pending // by aggregate id
}

// The names are not those of the defaults, and one needs quotes.
var (
	testTable   = outbox.Table{Schema: "public", Name: "Outbox events"}
	testColumns = outbox.Columns{ID: "seq", EventID: "uid", PublishedAt: "sent at"}
)

const (
	plainTable = `create table "Outbox events" (
		seq bigint generated always as identity primary key, uid uuid not null default gen_random_uuid() unique,
		aggregate_id text not null, payload jsonb, "sent at" timestamptz);
		create index on "Outbox events" (seq) where "sent at" is null`

	partitionedTable = `create table "Outbox events" (
		seq bigint generated always as identity, uid uuid not null default gen_random_uuid(),
		aggregate_id text not null, payload jsonb, "sent at" timestamptz, primary key (seq, aggregate_id)
		) partition by list (aggregate_id);
		create index on "Outbox events" (seq) where "sent at" is null;
		create table part_a partition of "Outbox events" for values in ('a');
		create table part_b partition of "Outbox events" for values in ('b');
		create table part_rest partition of "Outbox events" default`
)

func newTable(t testing.TB, server *harness.Server, ddl string, after AfterPublish) *table {
	t.Helper()
	db := server.Database(t)
	x := &table{t: t, db: db, app: db.Connect(t)}
	x.renew(ddl, after)
	return x
}

// renew makes the table anew, with a settler on a new connection: a database is dear.
func (x *table) renew(ddl string, after AfterPublish) {
	x.t.Helper()
	x.db.Exec(x.t, `drop table if exists "Outbox events"; `+ddl)
	x.rows = map[string]Pending{}
	x.settler = NewSettler(x.db.Connect(x.t), testTable, testColumns, after)
}

func (x *table) exec(conn *pgx.Conn, sql string, args ...any) {
	x.t.Helper()
	if _, err := conn.Exec(x.t.Context(), sql, args...); err != nil {
		x.t.Fatalf("%s: %v", sql, err)
	}
}

// insert writes one row per name on the connection, in whatever transaction it is.
func (x *table) insert(conn *pgx.Conn, names ...string) {
	x.t.Helper()
	for _, name := range names {
		p := Pending{Token: uint64(len(x.rows) + 1)}
		var event [16]byte
		var xid int64
		err := conn.QueryRow(x.t.Context(), `insert into "Outbox events" (aggregate_id, payload) values ($1, '{}')
			returning seq, uid, pg_current_xact_id()::text::bigint`, name).Scan(&p.Row.RowID, &event, &xid)
		if err != nil {
			x.t.Fatal(err)
		}
		p.Row.EventID, p.XID = event, uint32(xid)
		x.rows[name] = p
	}
}

func (x *table) pending(names ...string) (pending []Pending) {
	for _, name := range names {
		pending = append(pending, x.rows[name])
	}
	return pending
}

// settle says what became of each row: touched, marked, locked, invisible, removed.
func (x *table) settle(names ...string) []Outcome {
	x.t.Helper()
	ctx, cancel := context.WithTimeout(x.t.Context(), 10*time.Second)
	defer cancel()
	out, err := x.settler.Settle(ctx, x.pending(names...), nil)
	if err != nil {
		x.t.Fatal(err)
	}
	return out
}

func (x *table) expect(names []string, want ...Outcome) {
	x.t.Helper()
	if got := x.settle(names...); !slices.Equal(got, want) {
		x.t.Errorf("rows %v are %v, want %v", names, got, want)
	}
}

// state is what the table holds: name and whether it is marked, in order of name.
func (x *table) state() string {
	x.t.Helper()
	return x.db.Text(x.t, `select coalesce(string_agg(aggregate_id || case when "sent at" is null then '' else '+' end, ' '
		order by aggregate_id), '') from "Outbox events"`)
}

// other is a connection with an open transaction that holds what the statement locks, until it is released.
func (x *table) other(sql string) (release func()) {
	x.t.Helper()
	conn := x.db.Connect(x.t)
	x.exec(conn, "begin")
	x.exec(conn, sql)
	return func() { x.exec(conn, "commit") }
}

func names(n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprintf("row%05d", i))
	}
	return names
}
