package checkpoint

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"

	"walrelay/test/harness"
)

func TestSettleTellsFourSetsApart(t *testing.T) {
	harness.EachVersion(t, func(t *testing.T, server *harness.Server) {
		x := newTable(t, server, plainTable, Mark)
		x.insert(x.app, "free", "marked", "locked", "removed", "other")
		x.exec(x.app, `update "Outbox events" set "sent at" = now() where aggregate_id = 'marked'`)
		x.exec(x.app, `delete from "Outbox events" where aggregate_id = 'removed'`)
		release := x.other(`select from "Outbox events" where aggregate_id = 'locked' for update`)
		writer := x.db.Connect(t)
		x.exec(writer, "begin")
		x.insert(writer, "invisible")

		all := []string{"invisible", "removed", "locked", "marked", "free"}
		x.expect(all, Invisible, Removed, Locked, Marked, Touched)
		if got, want := x.state(), "free+ locked marked+ other"; got != want {
			t.Errorf("the table has %q, want %q", got, want)
		}
		release()
		x.exec(writer, "commit")
		x.expect(all, Touched, Removed, Touched, Marked, Marked)
		if got, want := x.state(), "free+ invisible+ locked+ marked+ other"; got != want {
			t.Errorf("the table has %q, want %q", got, want)
		}
	})
}

func TestSettleDeletesMarkedRowsToo(t *testing.T) {
	harness.EachVersion(t, func(t *testing.T, server *harness.Server) {
		x := newTable(t, server, plainTable, Delete)
		x.insert(x.app, "free", "marked", "locked", "removed", "other")
		x.exec(x.app, `update "Outbox events" set "sent at" = now() where aggregate_id in ('marked', 'locked')`)
		x.exec(x.app, `delete from "Outbox events" where aggregate_id = 'removed'`)
		release := x.other(`select from "Outbox events" where aggregate_id = 'locked' for key share`)
		x.expect([]string{"free", "marked", "locked", "removed"}, Touched, Touched, Locked, Removed)
		if got, want := x.state(), "locked+ other"; got != want {
			t.Errorf("the table has %q, want %q", got, want)
		}
		release()
		x.expect([]string{"locked"}, Touched)
		if got, want := x.state(), "other"; got != want {
			t.Errorf("the table has %q, want %q", got, want)
		}
	})
}

// In each partition there is a tuple of the same id; only the right one may be touched.
func TestSettlePartitioned(t *testing.T) {
	harness.EachVersion(t, func(t *testing.T, server *harness.Server) {
		x := newTable(t, server, partitionedTable, Mark)
		for after, want := range map[AfterPublish]string{Mark: "a+ b c", Delete: "b c"} {
			x.renew(partitionedTable, after)
			x.insert(x.app, "a", "b", "c")
			release := x.other(`select from "Outbox events" where aggregate_id = 'b' for update`)
			x.expect([]string{"a", "b"}, Touched, Locked)
			if got := x.state(); got != want {
				t.Errorf("%s: the table has %q, want %q", after, got, want)
			}
			release()
			x.expect([]string{"c", "b"}, Touched, Touched)
		}
	})
}

// TestH01RowBecomesVisibleLater: the writer's commit record is flushed, and therefore sent and published, while the
// writer waits for a synchronous standby that is away. The settle connection would wait for it too (H13), were its
// commits not local.
func TestH01RowBecomesVisibleLater(t *testing.T) {
	server := harness.Postgres(t, harness.Setting("synchronous_standby_names", "nobody"), harness.Setting("synchronous_commit", "local"))
	x := newTable(t, server, plainTable, Mark)
	x.insert(x.app, "before")
	writer := x.db.Connect(t)
	x.exec(writer, "set synchronous_commit = on")
	x.exec(writer, "begin")
	x.insert(writer, "waiting")
	commit := make(chan error, 1)
	go func() {
		_, err := writer.Exec(t.Context(), "commit")
		commit <- err
	}()
	x.db.Eventually(t.Context(), t, "SyncRep", "select wait_event from pg_stat_activity where pid = "+pid(writer.PgConn().PID()))

	x.expect([]string{"before", "waiting"}, Touched, Invisible)
	x.expect([]string{"waiting"}, Invisible)
	x.exec(x.app, "select pg_cancel_backend($1)", writer.PgConn().PID()) // it stops waiting; it has committed
	if err := <-commit; err != nil {
		t.Fatal(err)
	}
	x.expect([]string{"waiting"}, Touched)
}

func TestH11TheIDComesBackAsAnotherEvent(t *testing.T) {
	x := newTable(t, harness.Postgres(t), plainTable, Mark)
	for _, after := range []AfterPublish{Mark, Delete} {
		x.renew(plainTable, after)
		x.insert(x.app, "first", "second")
		x.exec(x.app, `update "Outbox events" set uid = gen_random_uuid() where aggregate_id = 'first'`)
		x.expect([]string{"first", "second"}, Removed, Touched)
		if got := x.state(); !strings.HasPrefix(got, "first") || strings.HasPrefix(got, "first+") {
			t.Errorf("%s touched another event with the same id: %q", after, got)
		}
	}
}

// TestH13H14SettleIsCommittedLocally: whatever the database's default, neither later nor waiting for a standby.
func TestH13H14SettleIsCommittedLocally(t *testing.T) {
	for _, mode := range []string{"off", "on", "remote_apply"} {
		db := harness.Postgres(t).Database(t)
		db.Exec(t, plainTable+`; alter database `+db.Name+` set synchronous_commit = `+mode)
		x := &table{t: t, db: db, app: db.Connect(t), rows: map[string]Pending{}}
		conn := db.Connect(t)
		x.settler = NewSettler(conn, testTable, testColumns, Mark)
		x.insert(x.app, "a")
		x.expect([]string{"a"}, Touched)
		var got string
		if err := conn.QueryRow(t.Context(), "show synchronous_commit").Scan(&got); err != nil {
			t.Fatal(err)
		}
		if got != "local" {
			t.Errorf("default %s: synchronous_commit is %s, want local", mode, got)
		}
	}
}

func TestH17LockedTableIsNotWaitedFor(t *testing.T) {
	x := newTable(t, harness.Postgres(t), plainTable, Mark)
	x.insert(x.app, "a", "b")
	release := x.other(`lock table "Outbox events" in access exclusive mode`)
	x.expect([]string{"a", "b"}, Locked, Locked)
	release()
	x.expect([]string{"a", "b"}, Touched, Touched)
}

// TestSettleOfWholeBatches: more rows than the planner was told of, twice over, in an order that is not theirs.
func TestSettleOfWholeBatches(t *testing.T) {
	x := newTable(t, harness.Postgres(t), plainTable, Mark)
	for _, after := range []AfterPublish{Mark, Delete} {
		x.renew(plainTable, after)
		all := names(3000)
		x.exec(x.app, "begin")
		x.insert(x.app, all...)
		x.exec(x.app, "commit")
		rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		release := x.other(`select from "Outbox events" where seq % 100 = 0 for update`)
		twice := slices.Concat(all[:2000], all[1000:])
		count := map[Outcome]int{}
		for _, o := range x.settle(twice...) {
			count[o]++
		}
		locked := 0
		for _, name := range twice {
			if x.rows[name].Row.RowID%100 == 0 {
				locked++
			}
		}
		if count[Locked] != locked || count[Touched] != len(twice)-locked {
			t.Errorf("%s: %v, want %d locked and the others touched", after, count, locked)
		}
		release()
	}
}

// TestSettleBesideWriters: the application changes rows while they are settled; every row is settled in the end, and
// none is called settled that is not.
func TestSettleBesideWriters(t *testing.T) {
	x := newTable(t, harness.Postgres(t), plainTable, Mark)
	all := names(400)
	x.exec(x.app, "begin")
	x.insert(x.app, all...)
	x.exec(x.app, "commit")
	ctx, stop := context.WithCancel(t.Context())
	var g errgroup.Group
	for range 3 {
		conn := x.db.Connect(t)
		g.Go(func() error {
			for ctx.Err() == nil {
				if _, err := conn.Exec(t.Context(), `update "Outbox events" set payload = '{"touched": 1}' where seq % 50 = $1`, rand.IntN(50)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	left := slices.Clone(all)
	for rounds := 0; len(left) > 0; rounds++ {
		outcomes := x.settle(left...)
		var again []string
		for i, name := range left {
			switch outcomes[i] {
			case Locked:
				again = append(again, name)
			case Touched, Marked:
			default:
				t.Fatalf("row %s is %s", name, outcomes[i])
			}
		}
		if left = again; rounds > 10_000 {
			t.Fatalf("progress: %d rows are still locked", len(left))
		}
	}
	stop()
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	if n := x.db.Text(t, `select count(*) from "Outbox events" where "sent at" is null`); n != "0" {
		t.Errorf("%s rows were called settled and are not marked", n)
	}
}
