package pgfake_test

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"walrelay/test/pgfake"
)

// code is the SQLSTATE of an error, or what else it is.
func code(err error) string {
	var pg *pgconn.PgError
	switch {
	case err == nil:
		return ""
	case errors.As(err, &pg):
		return pg.Code
	}
	return err.Error()
}

// Every type passes both ways, in text and in binary, by every way in which pgx sends a statement.
func TestTypesAndModes(t *testing.T) {
	bubble(t, pgfake.Config{}, func(r *rig) {
		r.srv.Handle(pgfake.Statement{
			Match: pgfake.Tagged("echo"),
			Columns: []pgfake.Column{{"a", pgtype.Int4OID}, {"b", pgtype.Int8OID}, {"c", pgtype.TextOID}, {"d", pgtype.BoolOID},
				{"e", pgtype.UUIDOID}, {"f", pgtype.TimestamptzOID}, {"g", pgtype.Int8ArrayOID}, {"h", pgtype.UUIDArrayOID}, {"i", pgtype.TextOID}},
			Run: func(c *pgfake.Call) ([][]any, error) {
				var a int32
				var b int64
				var s string
				var d bool
				var e [16]byte
				var f time.Time
				var g []int64
				var h [][16]byte
				var null *string
				for i, dst := range []any{&a, &b, &s, &d, &e, &f, &g, &h, &null} {
					if err := c.Scan(i, dst); err != nil {
						return nil, err
					}
				}
				return [][]any{{a, b, s, d, e, f, g, h, null}}, nil
			},
		})
		conn := r.sql()
		sql := "/* walrelay:echo */ SELECT $1::int, $2::bigint, $3::text, $4::bool, $5::uuid, $6::timestamptz, $7::bigint[], $8::uuid[], $9"
		id := [16]byte{1, 2, 15: 3}
		in := []any{int32(-1), int64(1 << 40), "", true, id, time.Unix(1e9, 123000).UTC(), []int64{1, -2}, [][16]byte{id, {}}, (*string)(nil)}
		for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec} {
			var a int32
			var b int64
			var s string
			var d bool
			var e [16]byte
			var f time.Time
			var g []int64
			var h [][16]byte
			var null *string
			if err := conn.QueryRow(context.Background(), sql, append([]any{mode}, in...)...).Scan(&a, &b, &s, &d, &e, &f, &g, &h, &null); err != nil {
				r.t.Fatalf("%v: %v", mode, err)
			}
			out := []any{a, b, s, d, e, f.UTC(), g, h, null}
			if !reflect.DeepEqual(in, out) {
				r.t.Errorf("%v: sent %v, got %v", mode, in, out)
			}
		}
		// A batch is one implicit transaction.
		batch := &pgx.Batch{}
		batch.Queue("SELECT 1")
		batch.Queue("SET application_name = 'x'")
		if err := conn.SendBatch(context.Background(), batch).Close(); err != nil {
			r.t.Error(err)
		}
		if err := conn.Ping(context.Background()); err != nil {
			r.t.Error(err)
		}
		r.fine()
		if _, err := conn.Exec(context.Background(), "SELECT nothing FROM nowhere"); code(err) != "0A000" {
			r.t.Error(err)
		}
		if got := r.srv.Unhandled(); len(got) != 1 {
			r.t.Errorf("unhandled: %q", got)
		}
	})
}

func TestReplicationCommands(t *testing.T) {
	bubble(t, pgfake.Config{Major: 17}, func(r *rig) {
		ctx, conn := context.Background(), r.replication("wal_sender_timeout=15000")
		id, err := pglogrepl.IdentifySystem(ctx, conn)
		if err != nil || id.DBName != "app" || id.Timeline != 1 || id.XLogPos == 0 {
			r.t.Errorf("%+v, %v", id, err)
		}
		exec := func(sql string) string {
			_, err := conn.Exec(ctx, sql).ReadAll()
			return code(err)
		}
		for sql, want := range map[string]string{
			"SHOW wal_sender_timeout": "",
			`CREATE_REPLICATION_SLOT "x" LOGICAL pgoutput (SNAPSHOT 'nothing', FAILOVER true)`:              "",
			`CREATE_REPLICATION_SLOT "s" LOGICAL pgoutput NOEXPORT_SNAPSHOT`:                                "42710",
			`CREATE_REPLICATION_SLOT "X" LOGICAL pgoutput`:                                                  "42602",
			`DROP_REPLICATION_SLOT nope`:                                                                    "42704",
			`TIMELINE_HISTORY 1`:                                                                            "58P01",
			`START_REPLICATION SLOT "nope" LOGICAL 0/0 (proto_version '1', publication_names 'p')`:          "42704",
			`START_REPLICATION SLOT "s" LOGICAL 0/0 (proto_version '4', publication_names 'p')`:             "0A000",
			`START_REPLICATION SLOT "s" LOGICAL 0/0 (proto_version '1')`:                                    "22023",
			`START_REPLICATION SLOT "s" LOGICAL 0/0 (proto_version '1', publication_names 'p', origin 'x')`: "XX000",
			`/* a comment */ SELECT 1; SET lock_timeout = '1s'; -- ;` + "\nSELECT 1":                        "",
		} {
			if got := exec(sql); got != want {
				r.t.Errorf("%s: %q, want %q", sql, got, want)
			}
		}
		if slot, ok := r.srv.Slot("x"); !ok || !slot.Failover {
			r.t.Errorf("slot %+v", slot)
		}
		if got := exec(`DROP_REPLICATION_SLOT "x" WAIT`); got != "" {
			r.t.Error(got)
		}
		other := r.config("10.0.0.9")
		other.Database = "nope"
		if _, err = pgx.ConnectConfig(ctx, other); code(err) != "3D000" {
			r.t.Errorf("another database: %v", err)
		}
		if res := conn.ExecParams(ctx, "SELECT 1", nil, nil, nil, nil).Read(); code(res.Err) != "08P01" {
			r.t.Errorf("extended protocol on a walsender: %v", res.Err)
		}
	})
}

// A slot is created once every transaction that was writing has ended; statement_timeout gives up.
func TestCreateSlotWaitsForWriters(t *testing.T) {
	bubble(t, pgfake.Config{}, func(r *rig) {
		ctx, conn := context.Background(), r.replication()
		tx := r.srv.Begin()
		tx.Insert(row("a"))
		create := func() error {
			_, err := conn.Exec(ctx, `CREATE_REPLICATION_SLOT "x" LOGICAL pgoutput USE_SNAPSHOT`).ReadAll()
			return err
		}
		if _, err := conn.Exec(ctx, "SET statement_timeout = 5000").ReadAll(); err != nil {
			r.t.Fatal(err)
		}
		began := time.Now()
		if err := create(); code(err) != "57014" || time.Since(began) != 5*time.Second {
			r.t.Errorf("%v after %v", err, time.Since(began))
		}
		time.AfterFunc(3*time.Second, func() { tx.Commit() })
		if err := create(); err != nil || time.Since(began) != 8*time.Second {
			r.t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

func TestAdvisoryLockIsFreedWithItsConnection(t *testing.T) {
	bubble(t, pgfake.Config{}, func(r *rig) {
		ctx, repl, sql := context.Background(), r.replication("wal_sender_timeout=10s"), r.sql()
		try := func() (won bool) {
			if err := sql.QueryRow(ctx, "SELECT pg_try_advisory_lock($1)", int64(1)<<50).Scan(&won); err != nil {
				r.t.Fatal(err)
			}
			return won
		}
		if !try() {
			r.t.Fatal("a free lock is not given")
		}
		var freed bool
		if err := sql.QueryRow(ctx, "SELECT pg_advisory_unlock($1)", int64(1)<<50).Scan(&freed); err != nil || !freed {
			r.t.Fatal(freed, err)
		}
		res, err := repl.Exec(ctx, "/* walrelay:lock */ SELECT pg_try_advisory_lock(1125899906842624)").ReadAll()
		if err != nil || string(res[0].Rows[0][0]) != "t" {
			r.t.Fatalf("%v, %v", res, err)
		}
		if try() || r.srv.LockHolder(1<<50) == nil {
			r.t.Error("the lock is given twice")
		}
		// A dead host keeps it until wal_sender_timeout, a closed connection not at all.
		if err := pglogrepl.StartReplication(ctx, repl, "s", 0, startOptions); err != nil {
			r.t.Fatal(err)
		}
		for _, l := range r.net.Links() {
			if l.From == repl.Conn().LocalAddr().String() {
				l.Stall()
			}
		}
		time.Sleep(9 * time.Second)
		if try() {
			r.t.Error("the lock of a dead host was given away early")
		}
		time.Sleep(2 * time.Second)
		if !try() {
			r.t.Error("wal_sender_timeout has not freed the lock")
		}
	})
}

func TestIdleSessionTimeoutAndTerminate(t *testing.T) {
	bubble(t, pgfake.Config{}, func(r *rig) {
		conn := r.sql("idle_session_timeout=15s", "options=-c statement_timeout=1s")
		time.Sleep(16 * time.Second)
		if _, err := conn.Exec(context.Background(), "SELECT 1"); code(err) != "57P05" {
			r.t.Errorf("idle: %v", err)
		}
		conn = r.sql()
		r.srv.Terminate(func(c *pgfake.Conn) bool { return !c.Replication() })
		synctest.Wait()
		if _, err := conn.Exec(context.Background(), "SELECT 1"); code(err) != "57P01" {
			r.t.Errorf("terminated: %v", err)
		}
	})
}
