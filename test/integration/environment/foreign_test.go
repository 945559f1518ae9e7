package environment

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"walrelay/test/harness"
	"walrelay/test/integration/fixture"
)

// A publication of all tables and all actions brings everything that others write: rows of every
// type, rows that are larger than any outbox row may be, updates and deletes with their old rows.
// All of it is passed over, and none of it is poison.
func TestPublicationOfAllTables(t *testing.T) {
	oldestAndNewest(t, func(t *testing.T, s *harness.Server) {
		f := fixture.New(t, fixture.On(s))
		name := pgx.Identifier{f.DB.Name}.Sanitize()
		f.DB.Exec(t, "DROP PUBLICATION "+name+"; CREATE PUBLICATION "+name+" FOR ALL TABLES WITH (publish_via_partition_root = true)")
		f.DB.Exec(t, `CREATE TYPE mood AS ENUM ('calm', 'not');
			CREATE TYPE pair AS (a int, b text);
			CREATE DOMAIN short AS text CHECK (length(value) < 10);
			CREATE SCHEMA other;
			CREATE TABLE other.outbox (LIKE public.outbox INCLUDING ALL);
			CREATE TABLE wide (id int, big text, m mood, p pair, s short, arr int[], r int4range, x xml, f float8);
			ALTER TABLE wide REPLICA IDENTITY FULL;
			ALTER TABLE wide ALTER COLUMN big SET STORAGE EXTERNAL;
			CREATE TABLE parted (id int, v text) PARTITION BY RANGE (id);
			CREATE TABLE parted1 PARTITION OF parted FOR VALUES FROM (0) TO (10);
			CREATE TABLE parted2 PARTITION OF parted FOR VALUES FROM (10) TO (20);
			ALTER TABLE parted REPLICA IDENTITY FULL; ALTER TABLE parted1 REPLICA IDENTITY FULL; ALTER TABLE parted2 REPLICA IDENTITY FULL;
			ALTER TABLE outbox REPLICA IDENTITY FULL`)
		r := f.Relay(t).Ready(t)
		w := f.Writer(t)
		write(t, w, 5)
		// 20 MB is five times what a row of ours may have.
		f.DB.Exec(t, `INSERT INTO wide VALUES (1, repeat('x', 20000000), 'calm', '(1,"a,b")', 'abc', '{1,2}', '[1,5)', '<a/>', 0.1);
			UPDATE wide SET id = 2;
			UPDATE wide SET big = 'short', m = NULL;
			INSERT INTO wide SELECT n, NULL, 'not' FROM generate_series(1, 50000) n;
			DELETE FROM wide WHERE id > 100;
			BEGIN; INSERT INTO parted VALUES (1, 'a'); UPDATE parted SET id = 11; COMMIT;
			INSERT INTO other.outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ('Order', '1', 'created', '{}');
			TRUNCATE wide, parted;
			ALTER TABLE wide DROP COLUMN big, ADD COLUMN more int DEFAULT 7;
			INSERT INTO wide (id) VALUES (1)`)
		write(t, w, 5)
		f.Settled(t)
		records := f.Events(t, 10)
		r.Stop(t)
		if v := f.Verify(t, w.Committed()); v.Duplicates > 0 || r.Reconnects(t) > 0 || len(records) != 10 {
			t.Errorf("%d records, %d of them repeated, %d reconnects", len(records), v.Duplicates, r.Reconnects(t))
		}
	})
}

// A transaction that holds millions of rows of other tables and one of ours moves the position, and
// does not fill the window.
func TestForeignRowsDoNotFillTheWindow(t *testing.T) {
	t.Parallel()
	f := fixture.New(t)
	name := pgx.Identifier{f.DB.Name}.Sanitize()
	f.DB.Exec(t, "CREATE TABLE busy (n int); ALTER PUBLICATION "+name+" ADD TABLE busy")
	r := f.Relay(t).Ready(t)
	w := f.Writer(t)
	write(t, w, 1)
	f.DB.Exec(t, "INSERT INTO busy SELECT generate_series(1, 200000)")
	write(t, w, 1)
	f.Events(t, 2)
	f.Settled(t)
	r.Stop(t)
	f.Verify(t, w.Committed())
}

// Whatever encoding the database has, Kafka gets UTF-8.
func TestEncodingOfTheDatabase(t *testing.T) {
	t.Parallel()
	s := harness.Postgres(t)
	f := fixture.New(t, fixture.On(s), fixture.Bare())
	name := pgx.Identifier{f.DB.Name}.Sanitize()
	maintenance := &harness.Database{Server: s, Name: "postgres"}
	maintenance.Exec(t, "DROP DATABASE "+name)
	maintenance.Exec(t, "CREATE DATABASE "+name+" ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0")
	f.DB.Exec(t, `CREATE TABLE outbox (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, event_id uuid NOT NULL DEFAULT gen_random_uuid() UNIQUE,
		aggregate_type text NOT NULL, aggregate_id text NOT NULL, event_type text NOT NULL, payload text, headers jsonb, published_at timestamptz)`)
	r := f.Relay(t).Ready(t)
	f.DB.Exec(t, `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload, headers) VALUES
		('Order', E'\u00c4-1', 'created', E'Zo\u00eb \u00a35', E'{"ort": "K\u00f6ln"}')`)
	records := f.Events(t, 1)
	f.Settled(t)
	r.Stop(t)
	if got := string(records[0].Key) + " " + string(records[0].Value); got != "Ä-1 Zoë £5" {
		t.Errorf("got %q", got)
	}
	if got, _ := harness.HeaderOf(records[0], "ort"); got != "Köln" {
		t.Errorf("header %q", got)
	}
}
