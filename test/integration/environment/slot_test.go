package environment

import (
	"errors"
	"strings"
	"testing"

	"walrelay/internal/postgres"
	"walrelay/test/harness"
	"walrelay/test/harness/oracle"
	"walrelay/test/integration/fixture"
)

// A slot for two-phase decoding gives rows of transactions that may still be rolled back, whatever the
// client asked for. The relay does not read from one.
func TestSlotForTwoPhase(t *testing.T) {
	oldestAndNewest(t, func(t *testing.T, s *harness.Server) {
		f := fixture.New(t, fixture.On(s))
		f.DB.Exec(t, "SELECT pg_create_logical_replication_slot('"+f.Slot+"', 'pgoutput', false, true)")
		err := f.Relay(t).Wait(t)
		mode, ok := errors.AsType[*postgres.ModeError](err)
		if !ok || !strings.Contains(mode.Reason, "two_phase") || !strings.Contains(mode.Remedy, "pg_drop_replication_slot") {
			t.Errorf("the relay ended with %v", err)
		}
	})
}

// A slot that is older than its publication cannot read what lies between: PostgreSQL ends every
// session at the same place, however often it is tried. The relay says so after the third and ends.
func TestSlotOlderThanItsPublication(t *testing.T) {
	t.Parallel()
	s := harness.Postgres(t)
	if s.Major >= 18 {
		t.Skip("PostgreSQL 18 passes over such rows and only warns in its own log")
	}
	f := fixture.New(t, fixture.On(s))
	name := `"` + f.DB.Name + `"`
	f.DB.Exec(t, "DROP PUBLICATION "+name)
	f.DB.Exec(t, "SELECT pg_create_logical_replication_slot('"+f.Slot+"', 'pgoutput')")
	f.DB.Exec(t, "INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ('Order', '1', 'created', '{}')")
	f.DB.Exec(t, "CREATE PUBLICATION "+name+" FOR TABLE outbox WITH (publish = 'insert', publish_via_partition_root = true)")
	err := f.Relay(t).Wait(t)
	var mode *postgres.ModeError
	if !errors.As(err, &mode) || !strings.Contains(err.Error(), "42704") || !strings.Contains(mode.Remedy, "drop the slot") {
		t.Errorf("the relay ended with %v", err)
	}
}

// Several tables have several relays, each with a slot and a publication of its own.
func TestTwoTables(t *testing.T) {
	t.Parallel()
	first := fixture.New(t)
	second := fixture.New(t, fixture.Set("OUTBOX_TABLE", "public.other"))
	second.DB.Exec(t, "DROP TABLE other CASCADE") // both tables are in the first one's database
	first.DB.Exec(t, "CREATE TABLE other (LIKE outbox INCLUDING ALL)")
	second.Setenv("DATABASE_URL", first.DB.URL())
	a := first.Relay(t).Ready(t)
	own := second.DB
	second.DB = first.DB
	b := second.Relay(t).Ready(t)
	both := [2][]oracle.Committed{}
	for i, f := range []*fixture.Fixture{first, second} {
		both[i] = oracle.Load{Rows: 3, Until: 100}.Run(t.Context(), t, f.DB, f.Table)
		f.Events(t, len(both[i]))
		f.Settled(t)
	}
	a.Stop(t)
	b.Stop(t)
	for i, f := range []*fixture.Fixture{first, second} {
		if v := f.Verify(t, both[i]); v.Duplicates > 0 {
			t.Errorf("%s: %d events were published twice", f.Table, v.Duplicates)
		}
	}
	second.DB = own
}
