package checkpoint

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"walrelay/test/harness"
)

func pid(n uint32) string { return strconv.FormatUint(uint64(n), 10) }

// TestSettleStaysOnIndexes: the plan is made while the table is empty, and kept while it grows unanalysed.
func TestSettleStaysOnIndexes(t *testing.T) {
	harness.EachVersion(t, func(t *testing.T, server *harness.Server) {
		x := newTable(t, server, plainTable, Mark)
		for _, after := range []AfterPublish{Mark, Delete} {
			for name, ddl := range map[string]string{"plain": plainTable, "partitioned": partitionedTable} {
				x.renew(ddl, after)
				x.rows["none"] = Pending{}
				x.expect([]string{"none"}, Removed)
				x.exec(x.app, `insert into "Outbox events" (aggregate_id, payload) select n::text, '{}' from generate_series(1, 5000) n`)
				plan := x.plan()
				if strings.Contains(plan, "Seq Scan") || strings.Contains(plan, "Hash Join") || strings.Contains(plan, "Merge Join") {
					t.Errorf("%s, %s table: the plan is not on the indexes:\n%s", after, name, plan)
				}
				x.insert(x.app, "a")
				x.expect([]string{"a"}, Touched)
			}
		}
	})
}

// plan is that of the statement which the settler has prepared.
func (x *table) plan() string {
	x.t.Helper()
	rows, err := x.settler.conn.Query(x.t.Context(), `explain execute "`+settleName+`" ('{1}', '{00000000-0000-0000-0000-000000000000}')`,
		pgx.QueryExecModeSimpleProtocol)
	if err != nil {
		x.t.Fatal(err)
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		x.t.Fatal(err)
	}
	return strings.Join(lines, "\n")
}

// TestSettleWithLeastPrivilege: SELECT, and UPDATE of one column; DELETE where rows are deleted.
func TestSettleWithLeastPrivilege(t *testing.T) {
	for after, rights := range map[AfterPublish]string{
		Mark:   `select, update ("sent at")`,
		Delete: `select, update ("sent at"), delete`,
	} {
		x := newTable(t, harness.Postgres(t), plainTable, after)
		x.insert(x.app, "a")
		x.become(rights)
		x.expect([]string{"a"}, Touched)
	}
}

// TestSettleRefusesToLookThroughAPolicy: a row that row-level security hides is not a row that is gone.
func TestSettleRefusesToLookThroughAPolicy(t *testing.T) {
	x := newTable(t, harness.Postgres(t), plainTable, Mark)
	x.insert(x.app, "a")
	x.exec(x.app, `alter table "Outbox events" enable row level security`)
	x.become("select, update")
	_, err := x.settler.Settle(t.Context(), x.pending("a"), nil)
	var pgErr *pgconn.PgError
	if !errors.As(err, &pgErr) || pgErr.Code != "42501" {
		t.Errorf("settled through a policy: %v", err)
	}
	if got := x.state(); got != "a" {
		t.Errorf("the table has %q", got)
	}
}

// become makes the settler's connection one of a role that has these rights to the table and no other.
func (x *table) become(rights string) {
	x.t.Helper()
	role := pgx.Identifier{x.db.Name + "_role"}.Sanitize()
	x.exec(x.app, "create role "+role)
	x.t.Cleanup(func() { // roles outlive the database
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		conn, err := pgx.Connect(ctx, x.db.URL())
		if err != nil {
			x.t.Error(err)
			return
		}
		defer conn.Close(ctx)
		if _, err := conn.Exec(ctx, "drop owned by "+role); err != nil {
			x.t.Error(err)
		}
		if _, err := conn.Exec(ctx, "drop role "+role); err != nil {
			x.t.Error(err)
		}
	})
	x.exec(x.app, "grant "+rights+` on "Outbox events" to `+role)
	x.exec(x.settler.conn, "set role "+role)
}

func TestVisibleInSnapshot(t *testing.T) {
	const epoch = 1 << 32
	for _, c := range []struct {
		name     string
		xid      uint32
		snapshot string
		want     bool
	}{
		{"below xmin", 99, "100:110:100,105", true},
		{"running", 105, "100:110:100,105", false},
		{"ended before the snapshot", 104, "100:110:100,105", true},
		{"at xmax", 110, "100:110:100,105", false},
		{"none is running", 109, "110:110:", true},
		{"in the second epoch", 4, "4294967300:4294967302:4294967300", false},
		{"of the first epoch, seen from the second", epoch - 5, "4294967300:4294967302:4294967300", true},
		{"running since the first epoch", epoch - 5, "4294967291:4294967302:4294967291", false},
		{"of the second epoch, seen from the first", 3, "4294967290:4294967295:", false},
	} {
		got, err := isVisible(c.xid, c.snapshot)
		if err != nil || got != c.want {
			t.Errorf("%s: %v, %v, want %v", c.name, got, err, c.want)
		}
	}
	for _, malformed := range []string{"", "1:2", "a:2:", "1:b:", "1:5:x"} {
		if _, err := isVisible(1, malformed); err == nil {
			t.Errorf("snapshot %q was read", malformed)
		}
	}
}
