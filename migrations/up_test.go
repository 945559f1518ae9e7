package migrations

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"walrelay/outbox"
	"walrelay/test/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Run(m)) }

// database is a fresh one on a shared server.
func database(t *testing.T) *harness.Database {
	t.Helper()
	return harness.Postgres(t, harness.NoSync()).Database(t)
}

func states(steps []Step) string {
	var out []string
	for _, s := range steps {
		word := string(s.State)
		if s.Changed {
			word += "!"
		}
		out = append(out, word)
	}
	return strings.Join(out, " ")
}

func up(t *testing.T, conn *pgx.Conn, o Options, want string) []Step {
	t.Helper()
	steps, err := Up(t.Context(), conn, o)
	if err != nil {
		t.Fatalf("up: %v", err)
	}
	if got := states(steps); got != want {
		t.Fatalf("up: got %q, want %q: %+v", got, want, steps)
	}
	return steps
}

func exec(t *testing.T, conn *pgx.Conn, sql string) {
	t.Helper()
	if _, err := conn.PgConn().Exec(t.Context(), sql).ReadAll(); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func TestUpMakesWhatIsMissingAndOnlyOnce(t *testing.T) {
	harness.EachVersion(t, func(t *testing.T, server *harness.Server) {
		testUp(t, server.Database(t).Connect(t))
	}, harness.NoSync())
}

func testUp(t *testing.T, conn *pgx.Conn) {
	o := defaults(t)
	steps, err := Status(t.Context(), conn, o)
	if err != nil || states(steps) != "pending pending" {
		t.Fatalf("status of an empty database: %q, %v", states(steps), err)
	}
	up(t, conn, o, "applied! applied!")
	up(t, conn, o, "applied applied")

	exec(t, conn, `insert into outbox (aggregate_type, aggregate_id, event_type, payload, headers)
		values ('order', '1', 'created', '{}', '{"a":"b"}')`)
	if _, err := conn.Exec(t.Context(), `insert into outbox (aggregate_type, aggregate_id, event_type, headers)
		values ('order', '1', 'created', '[]')`); err == nil {
		t.Error("headers that are no object were accepted")
	}

	// Another publication and another table are pending again and leave the first ones alone.
	second := o
	second.Publication = "other"
	up(t, conn, second, "applied applied!")
	second.Table.Name = "outbox2"
	if _, err := Up(t.Context(), conn, second); err == nil || !strings.Contains(err.Error(), "does not include public.outbox2") {
		t.Errorf("a publication of another table was accepted: %v", err)
	}
	up(t, conn, o, "applied applied")

	exec(t, conn, `drop publication walrelay`)
	steps = up(t, conn, o, "applied applied!")
	if len(steps[1].Notes) == 0 {
		t.Error("that the publication was gone is not said")
	}
}

// The trigger is made when it is asked for, notifies once per transaction, and is told when it sleeps.
func TestNotify(t *testing.T) {
	db := database(t)
	conn := db.Connect(t)
	o := defaults(t)
	up(t, conn, o, "applied! applied!")
	o.Notify = true
	up(t, conn, o, "applied applied applied!")
	o.Notify = false
	up(t, conn, o, "applied applied applied")

	listener := db.Connect(t)
	exec(t, listener, `do $$ begin execute format('listen walrelay_%s', 'outbox'::regclass::oid); end $$`)
	exec(t, conn, `begin; insert into outbox (aggregate_type, aggregate_id, event_type) values ('a', '1', 'c');
		insert into outbox (aggregate_type, aggregate_id, event_type) select 'a', n::text, 'c' from generate_series(1, 10) n; commit`)
	n, err := listener.WaitForNotification(t.Context())
	if err != nil || n.Payload != "" {
		t.Fatalf("notified of %v, %v", n, err)
	}
	exec(t, conn, `select pg_notify('walrelay_' || 'outbox'::regclass::oid, 'the end')`)
	if n, err = listener.WaitForNotification(t.Context()); err != nil || n.Payload != "the end" {
		t.Errorf("notified again: %v, %v", n, err)
	}

	exec(t, conn, `alter table outbox disable trigger walrelay_notify`)
	steps := up(t, conn, o, "applied applied applied")
	if notes := strings.Join(steps[2].Notes, ""); !strings.Contains(notes, "enable trigger") {
		t.Errorf("notes of a disabled trigger: %q", notes)
	}
}

func TestEveryPayloadTypeAndOddNames(t *testing.T) {
	conn := database(t).Connect(t)
	exec(t, conn, `create schema "Odd Schema"`)
	for _, payload := range []string{"jsonb", "json", "text", "bytea"} {
		o := defaults(t)
		o.Table = outbox.Table{Schema: "Odd Schema", Name: payload + ` "x" -- ` + strings.Repeat("y", 40)}
		o.Publication = "pub " + payload
		o.Columns.EventType = "type"
		o.Payload = payload
		up(t, conn, o, "applied! applied!")
		o.Payload = "jsonb"
		if _, err := Up(t.Context(), conn, o); (err == nil) != (payload == "jsonb") {
			t.Errorf("asked for jsonb, found %s: %v", payload, err)
		}
	}
}

func TestAForeignTableIsDescribedAndLeftAlone(t *testing.T) {
	conn := database(t).Connect(t)
	exec(t, conn, `create table outbox (id bigserial primary key, uid uuid, aggregate_type text, aggregate_id uuid,
		event_type varchar(20), payload json, published_at timestamptz)`)
	o := defaults(t)
	if _, err := Up(t.Context(), conn, o); err == nil || !strings.Contains(err.Error(), "OUTBOX_COLUMN_EVENT_ID") {
		t.Fatalf("a table without the event id was accepted: %v", err)
	}
	o.Columns.EventID = "uid"
	steps := up(t, conn, o, "found applied!")
	if notes := strings.Join(steps[0].Notes, "\n"); !strings.Contains(notes, "left as it is") || !strings.Contains(notes, `no column "headers"`) {
		t.Errorf("notes: %s", notes)
	}
	up(t, conn, o, "found applied")
	exec(t, conn, `alter table outbox alter event_type type int using 1`)
	if _, err := Up(t.Context(), conn, o); err == nil || !strings.Contains(err.Error(), `"event_type"`) {
		t.Errorf("an integer event type was accepted: %v", err)
	}
}

func TestAChangedFileIsNoticed(t *testing.T) {
	conn := database(t).Connect(t)
	o := defaults(t)
	up(t, conn, o, "applied! applied!")
	exec(t, conn, `update walrelay_migrations set checksum = 'x' where version = 1`)
	if _, err := Up(t.Context(), conn, o); err == nil || !strings.Contains(err.Error(), "0001_outbox: was changed") {
		t.Errorf("got %v", err)
	}
}

func TestAFailedFileLeavesNothing(t *testing.T) {
	conn := database(t).Connect(t)
	o := defaults(t)
	all, err := All(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := createHistory(t.Context(), conn, "public"); err != nil {
		t.Fatal(err)
	}
	all[0].SQL += "; select 1/0"
	var pg *pgconn.PgError
	if err := apply(t.Context(), conn, o, all[0]); !errors.As(err, &pg) || pg.Code != "22012" {
		t.Fatalf("got %v", err)
	}
	up(t, conn, o, "applied! applied!")
}

func TestTwoAtOnceMigrateOnce(t *testing.T) {
	db := database(t)
	var conns []*pgx.Conn
	for range 4 {
		conns = append(conns, db.Connect(t))
	}
	changed := make([]int, len(conns))
	var wg sync.WaitGroup
	for i, conn := range conns {
		wg.Go(func() {
			steps, err := Up(t.Context(), conn, defaults(t))
			if err != nil {
				t.Errorf("up %d: %v", i, err)
			}
			for _, s := range steps {
				if s.Changed {
					changed[i]++
				}
			}
		})
	}
	wg.Wait()
	sum := 0
	for _, n := range changed {
		sum += n
	}
	if sum != 2 {
		t.Errorf("2 files were applied %d times: %v", sum, changed)
	}
}

func TestTheHolderOfTheLockIsNamed(t *testing.T) {
	db := database(t)
	holder := db.Connect(t)
	unlock, err := lock(t.Context(), holder, "public", lockWait)
	if err != nil {
		t.Fatal(err)
	}
	other := db.Connect(t)
	_, err = lock(t.Context(), other, "public", 0)
	if want := fmt.Sprintf("pid %d (", holder.PgConn().PID()); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
	if err := unlock(); err != nil {
		t.Fatal(err)
	}
	if unlock, err = lock(t.Context(), other, "public", 0); err != nil {
		t.Fatal(err)
	}
	if err := unlock(); err != nil {
		t.Fatal(err)
	}
}

// A role with what the script grants can do what each mode does, and no more.
func TestRoleIsEnoughAndNoMore(t *testing.T) {
	owner := database(t).Connect(t)
	o := defaults(t)
	up(t, owner, o, "applied! applied!")
	exec(t, owner, `insert into outbox (aggregate_type, aggregate_id, event_type) values ('a', '1', 'b')`)
	role := fmt.Sprintf("relay role %d", time.Now().UnixNano())
	t.Cleanup(func() {
		ctx := context.Background()
		_, err := owner.PgConn().Exec(ctx, `drop owned by `+quote(role)+`; drop role `+quote(role)).ReadAll()
		if err != nil {
			t.Error(err)
		}
	})
	for _, mode := range []string{"mark in polling", "mark with retention", "delete", "keep", "mark"} {
		after, how, _ := strings.Cut(mode, " ")
		polling := how == "in polling"
		o.Polling, o.Retention = polling, how == "with retention"
		sql, err := Role(o, role, after)
		if err != nil {
			t.Fatal(err)
		}
		exec(t, owner, sql)
		exec(t, owner, sql) // can be run again
		relay := connectAs(t, owner, role)
		for statement, allowed := range map[string]bool{
			`select count(*) from outbox where published_at is null`:                          true,
			`select id from outbox for update skip locked`:                                    mode != "keep",
			`update outbox set published_at = now() where published_at is null`:               mode != "keep",
			`delete from outbox where id < 0`:                                                 mode == "delete" || o.Retention,
			`update outbox set payload = '{}'`:                                                false,
			`insert into outbox (aggregate_type, aggregate_id, event_type) values ('','','')`: false,
			`truncate outbox`:                            false,
			`select pg_try_advisory_lock(1, 0)`:          true,
			`select slot_name from pg_replication_slots`: true,
			`select pg_create_logical_replication_slot('walrelay_role_test', 'pgoutput', true)`: !polling,
		} {
			_, err := relay.Exec(t.Context(), statement)
			if (err == nil) != allowed {
				t.Errorf("%s: %s: allowed %v, got %v", mode, statement, allowed, err)
			}
		}
		if err := relay.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// connectAs connects to the same database as another user.
func connectAs(t *testing.T, like *pgx.Conn, user string) *pgx.Conn {
	t.Helper()
	cfg := like.Config().Copy()
	cfg.User = user
	conn, err := pgx.ConnectConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return conn
}
