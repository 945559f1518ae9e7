package badinput

import (
	"os"
	"strings"
	"testing"

	"walrelay/test/harness"
	"walrelay/test/integration/fixture"
)

// A password that the server does not take, in every command that connects.
func TestWrongPassword(t *testing.T) {
	t.Parallel()
	server := harness.Postgres(t, harness.NoSync(), harness.Setting("max_replication_slots", "1"))
	f := newFixture(t, server, harness.Kafka(t))
	role := f.Slot + "_role"
	f.DB.Exec(t, "CREATE ROLE "+role+" LOGIN REPLICATION PASSWORD 'the right one'; GRANT SELECT, UPDATE ON outbox TO "+role)
	f.DB.Exec(t, insertRow)
	path := f.DB.Text(t, "SHOW hba_file")
	rules, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, append([]byte("host all "+role+" 127.0.0.1/32 scram-sha-256\n"), rules...), 0o600); err != nil {
		t.Fatal(err)
	}
	f.DB.Exec(t, "SELECT pg_reload_conf()")
	f.DB.Eventually(fixture.Within(t, fixture.Limit), t, "{scram-sha-256}",
		"SELECT array_agg(auth_method) FROM pg_hba_file_rules WHERE '"+role+"' = ANY (user_name)")
	f.Setenv("DATABASE_URL", as(t, f.DB, role))

	expect(t, run(t, f.Environ()).message(t, 1), `does not let user "`+role+`" in`, "password authentication failed", "28P01", "DATABASE_URL", "pg_hba.conf")
	for _, args := range [][]string{{"migrate", "up"}, {"migrate", "status"}} {
		expect(t, run(t, f.Environ(), args...).message(t, 1), "password authentication failed", "DATABASE_URL", "pg_hba.conf")
	}
	remains(t, f, unmarked, 1, "none")
}

func TestWALLevel(t *testing.T) {
	t.Parallel()
	f := newFixture(t, harness.Fresh(t, harness.NoSync(), harness.Setting("wal_level", "replica")), harness.Kafka(t))
	f.DB.Exec(t, insertRow)
	expect(t, run(t, f.Environ()).message(t, 1), "wal_level is replica", "ALTER SYSTEM SET wal_level = logical", "restart PostgreSQL")
	remains(t, f, unmarked, 1, "none")
}

func TestNoFreeSlot(t *testing.T) {
	t.Parallel()
	f := newFixture(t, harness.Postgres(t, harness.NoSync(), harness.Setting("max_replication_slots", "1")), harness.Kafka(t))
	standby := f.Slot + "_standby"
	f.DB.Exec(t, "SELECT pg_create_physical_replication_slot('"+standby+"')")
	defer f.DB.Exec(t, "SELECT pg_drop_replication_slot('"+standby+"')")
	expect(t, run(t, f.Environ()).message(t, 1), "every replication slot of the server is in use", "pg_replication_slots", "max_replication_slots")
	remains(t, f, unmarked, 0, "none")
}

// The slot of another database carries none of our rows.
func TestSlotOfAnotherDatabase(t *testing.T) {
	t.Parallel()
	server := harness.Postgres(t)
	f := newFixture(t, server, harness.Kafka(t))
	f.DB.Exec(t, insertRow)
	other := server.Database(t)
	other.Exec(t, strings.ReplaceAll(createSlot, "{slot}", f.Slot))
	expect(t, run(t, f.Environ()).message(t, 1), `slot "`+f.Slot+`" belongs to database "`+other.Name+`", not to "`+f.DB.Name+`"`, "REPLICATION_SLOT")
	remains(t, f, unmarked, 1, "pgoutput")
}

// Rows that were committed while there was no slot are in no stream. A new slot would pass over them.
func TestSlotDroppedWhileDown(t *testing.T) {
	t.Parallel()
	f := newFixture(t, harness.Postgres(t), harness.Kafka(t))
	first := run(t, f.Environ())
	first.await(t, "slot created", 1)
	f.DB.Exec(t, insertRow)
	f.Events(t, 1)
	first.Stop(t)
	f.DB.Exec(t, "SELECT pg_drop_replication_slot('"+f.Slot+"')")
	f.DB.Exec(t, insertRow)
	expect(t, run(t, f.Environ()).message(t, 1), `slot "`+f.Slot+`" does not exist`, "1 unpublished row", "UPDATE \"public\".\"outbox\"")
	remains(t, f, unmarked, 1, "none")

	f.DB.Exec(t, `UPDATE "public"."outbox" SET "published_at" = now() WHERE "published_at" IS NULL`)
	second := run(t, f.Environ())
	second.await(t, "slot created", 1)
	f.DB.Exec(t, insertRow)
	f.Events(t, 2)
	second.Stop(t)
}

// PostgreSQL 13 is one version too old, for the relay and for the migration.
func TestTooOld(t *testing.T) {
	t.Parallel()
	f := fixture.New(t, fixture.On(harness.Postgres(t, harness.NoSync(), harness.Major(13))), fixture.Set("LOG_FORMAT", "text"), fixture.Bare())
	migrate := run(t, f.Environ(), "migrate", "up")
	if code := migrate.Code(t); code != 1 {
		t.Errorf("migrate up: exit code %d, want 1", code)
	}
	expect(t, migrate.Log(), "walrelay: PostgreSQL 13.", "too old", "14 or newer")
	f.DB.Exec(t, "CREATE TABLE outbox (id bigint PRIMARY KEY, published_at timestamptz)")
	f.DB.Exec(t, "INSERT INTO outbox VALUES (1)")
	expect(t, run(t, f.Environ()).message(t, 1), "does not know a setting of the connection", "walrelay needs PostgreSQL 14 or later")
	remains(t, f, unmarked, 1, "none")
}

// A second relay of the same table is no mistake: it waits, and takes over.
func TestTwoRelays(t *testing.T) {
	t.Parallel()
	f := newFixture(t, harness.Postgres(t), harness.Kafka(t))
	first := run(t, f.Environ())
	first.await(t, "slot created", 1)
	second := run(t, f.Environ())
	second.await(t, "standby: another relay holds the lock of this table", 1)
	f.DB.Exec(t, insertRow)
	f.Events(t, 1)
	first.Stop(t)
	f.DB.Exec(t, insertRow)
	f.Events(t, 2)
	second.Stop(t)
	if strings.Contains(second.Log(), "level=WARN") || strings.Contains(second.Log(), "level=ERROR") {
		t.Error("the standby complains")
	}
}
