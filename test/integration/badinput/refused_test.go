package badinput

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"walrelay/test/harness"
	"walrelay/test/integration/fixture"
)

// A refusal is a state of server, table, publication or slot that the relay must not start in. In sql,
// want and env {slot}, {db} and {role} stand for this test's own names, {url} for its URL, {gone} for that of no database.
type refusal struct {
	name string
	sql  []string          // run one after the other, each on a connection of its own
	role string            // attributes of the role that the relay logs in as; empty: the superuser
	env  map[string]string // over the usual one
	want []string          // pieces of the message
	from int               // the first PostgreSQL that can be set up so; 0: all
	rows string            // a query that counts the rows that must still be there; empty: the unmarked ones
	left string            // plugin of the slot afterwards; "none": there is no slot
}

const (
	unmarked   = "SELECT count(*) FROM outbox WHERE published_at IS NULL"
	createSlot = "SELECT pg_create_logical_replication_slot('{slot}', 'pgoutput')"
)

// What was refused leaves the row unmarked, and the slot as it was.
func TestRefused(t *testing.T) {
	t.Parallel()
	for _, c := range refusals() {
		t.Run(strings.ReplaceAll(c.name, " ", "-"), func(t *testing.T) {
			t.Parallel()
			server := harness.Postgres(t)
			if server.Major < c.from {
				harness.Skip(t, t.Name(), fmt.Sprintf("needs PostgreSQL %d", c.from))
			}
			c.test(t, server)
		})
	}
}

func (c refusal) test(t *testing.T, server *harness.Server) {
	f := newFixture(t, server, harness.Kafka(t))
	role := f.Slot + "_role"
	names := strings.NewReplacer("{slot}", f.Slot, "{db}", f.DB.Name, "{role}", role, "{url}", f.DB.URL(), "{gone}", server.URL(f.DB.Name+"_gone"))
	f.DB.Exec(t, insertRow)
	if c.role != "" {
		f.DB.Exec(t, "CREATE ROLE "+role+" LOGIN "+c.role)
		t.Cleanup(func() { dropRole(t, f.DB, role) })
		f.Setenv("DATABASE_URL", as(t, f.DB, role))
	}
	for _, sql := range c.sql {
		f.DB.Exec(t, names.Replace(sql))
	}
	for name, value := range c.env {
		f.Setenv(name, names.Replace(value))
	}
	message := run(t, f.Environ()).message(t, 1)
	for _, piece := range c.want {
		expect(t, message, names.Replace(piece))
	}
	remains(t, f, cmp.Or(c.rows, unmarked), 1, cmp.Or(c.left, "none"))
}

// as is the URL of the database for a role, with a password.
func as(t *testing.T, db *harness.Database, role string) string {
	t.Helper()
	u, err := url.Parse(db.URL())
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(role, secret)
	return u.String()
}

// dropRole runs after the test's context has ended.
func dropRole(t *testing.T, db *harness.Database, role string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), fixture.Limit)
	defer cancel()
	conn, err := pgx.Connect(ctx, db.URL())
	if err != nil {
		t.Error(err)
		return
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, "DROP OWNED BY "+role+"; DROP ROLE "+role); err != nil {
		t.Errorf("drop role %s: %v", role, err)
	}
}

func refusals() []refusal {
	all := append(refusedTables(), refusedPublications()...)
	all = append(all, refusedSlots()...)
	return append(all, refusedRoles()...)
}

func refusedTables() []refusal {
	return []refusal{
		{
			name: "table missing", env: map[string]string{"OUTBOX_TABLE": "shop.events"},
			want: []string{`table shop.events does not exist in database "{db}"`, "walrelay migrate up", "OUTBOX_TABLE"},
		},
		{
			name: "database missing", env: map[string]string{"DATABASE_URL": "{gone}"},
			want: []string{`database "{db}_gone" does not exist at 127.0.0.1:`, "DATABASE_URL"},
		},
		{
			name: "unknown parameter", env: map[string]string{"DATABASE_URL": "{url}&serach_path=shop"},
			want: []string{`unrecognized configuration parameter "serach_path"`, "take the parameter out of DATABASE_URL"},
		},
		{
			name: "column of the wrong type", sql: []string{"ALTER TABLE outbox ALTER COLUMN payload TYPE int USING 1"},
			want: []string{`column "payload"`, "public.outbox", "jsonb, json, text, varchar or bytea"},
		},
		{
			name: "event id is text", sql: []string{"ALTER TABLE outbox ALTER COLUMN event_id DROP DEFAULT, ALTER COLUMN event_id TYPE text"},
			want: []string{`column "event_id" of table public.outbox is not of type uuid`, `ALTER TABLE "public"."outbox" ALTER COLUMN "event_id" TYPE uuid`},
		},
		{
			name: "required column missing", sql: []string{"ALTER TABLE outbox DROP COLUMN event_type"},
			want: []string{`column "event_type"`, "public.outbox", "OUTBOX_COLUMN_EVENT_TYPE"},
		},
		{
			name: "column name that does not exist", env: map[string]string{"OUTBOX_COLUMN_AGGREGATE_ID": "order_no"},
			want: []string{`column "order_no"`, "public.outbox", "OUTBOX_COLUMN_AGGREGATE_ID"},
		},
		{
			name: "no column to mark", sql: []string{"ALTER TABLE outbox DROP COLUMN published_at"}, rows: "SELECT count(*) FROM outbox",
			want: []string{`no column "published_at"`, "OUTBOX_COLUMN_PUBLISHED_AT", "RELAY_AFTER_PUBLISH=delete"},
		},
		{
			name: "no index", sql: []string{"ALTER TABLE outbox DROP CONSTRAINT outbox_pkey, DROP CONSTRAINT outbox_event_id_key"},
			want: []string{"table public.outbox has no index", `CREATE UNIQUE INDEX CONCURRENTLY ON "public"."outbox" ("id")`},
		},
		{
			name: "unmarked rows without a slot",
			want: []string{`slot "{slot}" does not exist`, "public.outbox", "1 unpublished row", `UPDATE "public"."outbox" SET "published_at" = now()`},
		},
	}
}

func refusedPublications() []refusal {
	return []refusal{
		{
			name: "publication without inserts", sql: []string{"ALTER PUBLICATION walrelay SET (publish = 'update')"},
			want: []string{`publication "walrelay" does not publish inserts`, `ALTER PUBLICATION "walrelay" SET (publish = 'insert')`},
		},
		{
			name: "publication without the table", sql: []string{"CREATE TABLE other (id int)", "ALTER PUBLICATION walrelay SET TABLE other"},
			want: []string{`publication "walrelay" does not publish table public.outbox`, `ALTER PUBLICATION "walrelay" ADD TABLE "public"."outbox"`},
		},
		{
			name: "publication dropped while the relay was down", sql: []string{createSlot, "DROP PUBLICATION walrelay"}, left: "pgoutput",
			want: []string{`publication "walrelay" does not exist`, `CREATE PUBLICATION "walrelay" FOR TABLE "public"."outbox"`},
		},
		{
			name: "publication missing and the role may not create it", role: "REPLICATION",
			sql: []string{"DROP PUBLICATION walrelay", "GRANT SELECT, UPDATE ON outbox TO {role}"},
			want: []string{`publication "walrelay" does not exist and cannot be created`, "as the owner of the table",
				`CREATE PUBLICATION "walrelay" FOR TABLE "public"."outbox" WITH (publish = 'insert', publish_via_partition_root = true)`},
		},
		{
			name: "row filter", from: 15, sql: []string{"ALTER PUBLICATION walrelay SET TABLE outbox WHERE (event_type = 'kept')"},
			want: []string{`publication "walrelay" has a row filter on table public.outbox`, `ALTER PUBLICATION "walrelay" DROP TABLE "public"."outbox"; ALTER PUBLICATION "walrelay" ADD TABLE "public"."outbox"`},
		},
		{
			name: "column list", from: 15, sql: []string{"ALTER PUBLICATION walrelay SET TABLE outbox (id, event_id, aggregate_type, aggregate_id, event_type)"},
			want: []string{`publication "walrelay" hides columns of table public.outbox`, "payload", `ALTER PUBLICATION "walrelay" DROP TABLE "public"."outbox"; ALTER PUBLICATION "walrelay" ADD TABLE "public"."outbox"`},
		},
	}
}

func refusedSlots() []refusal {
	return []refusal{
		{
			name: "slot of another plugin", sql: []string{"SELECT pg_create_logical_replication_slot('{slot}', 'test_decoding')"}, left: "test_decoding",
			want: []string{`slot "{slot}"`, `"test_decoding", not pgoutput`, "REPLICATION_SLOT"},
		},
		{
			name: "physical slot", sql: []string{"SELECT pg_create_physical_replication_slot('{slot}')"}, left: "physical",
			want: []string{`slot "{slot}"`, "physical", "REPLICATION_SLOT"},
		},
	}
}

func refusedRoles() []refusal {
	return []refusal{
		{
			name: "role without replication", role: "NOREPLICATION", sql: []string{"GRANT SELECT, UPDATE, DELETE ON outbox TO {role}"},
			want: []string{`role "{role}" may not use replication`, `ALTER ROLE "{role}" REPLICATION`},
		},
		{
			name: "role without select", role: "REPLICATION", sql: []string{"GRANT UPDATE ON outbox TO {role}"},
			want: []string{`role "{role}" may not SELECT on table public.outbox`, `GRANT SELECT ON "public"."outbox" TO "{role}"`},
		},
		{
			name: "role without update", role: "REPLICATION", sql: []string{"GRANT SELECT ON outbox TO {role}"},
			want: []string{`role "{role}" may not UPDATE ("published_at") on table public.outbox`, `GRANT UPDATE ("published_at") ON "public"."outbox" TO "{role}"`},
		},
		{
			name: "role with update of another column", role: "REPLICATION", sql: []string{"GRANT SELECT, UPDATE (payload) ON outbox TO {role}"},
			want: []string{`role "{role}" may not UPDATE ("published_at") on table public.outbox`, `GRANT UPDATE ("published_at") ON "public"."outbox" TO "{role}"`},
		},
		{
			name: "role without delete", role: "REPLICATION", sql: []string{"GRANT SELECT, UPDATE ON outbox TO {role}"},
			env:  map[string]string{"RELAY_AFTER_PUBLISH": "delete"},
			want: []string{`role "{role}" may not DELETE`, `GRANT DELETE ON "public"."outbox" TO "{role}"`},
		},
		{
			name: "role that may delete and not lock", role: "REPLICATION", sql: []string{"GRANT SELECT, DELETE ON outbox TO {role}"},
			env:  map[string]string{"RELAY_AFTER_PUBLISH": "delete"},
			want: []string{`role "{role}" may not`, `GRANT UPDATE ("published_at") ON "public"."outbox" TO "{role}"`},
		},
		{
			name: "keep without select", role: "REPLICATION", env: map[string]string{"RELAY_AFTER_PUBLISH": "keep"},
			want: []string{`role "{role}" may not SELECT on table public.outbox`, `GRANT SELECT ON "public"."outbox" TO "{role}"`},
		},
		{
			name: "role without usage of the schema", role: "REPLICATION", env: map[string]string{"OUTBOX_TABLE": "shop.outbox"},
			sql:  []string{"CREATE SCHEMA shop", "ALTER TABLE outbox SET SCHEMA shop", "GRANT SELECT, UPDATE ON shop.outbox TO {role}"},
			rows: "SELECT count(*) FROM shop.outbox WHERE published_at IS NULL",
			want: []string{`role "{role}" may not use schema "shop"`, `GRANT USAGE ON SCHEMA "shop" TO "{role}"`},
		},
	}
}
