package environment

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"walrelay/test/harness"
	"walrelay/test/integration/fixture"
)

// Settings of a database reach every session of it. None of them may change what is published, keep a
// row from being settled.
func TestSettingsOfTheDatabase(t *testing.T) {
	oldestAndNewest(t, func(t *testing.T, s *harness.Server) {
		f := fixture.New(t, fixture.On(s), fixture.Payload("bytea"))
		for setting, value := range map[string]string{
			"datestyle":                     "German, DMY",
			"intervalstyle":                 "sql_standard",
			"timezone":                      "Asia/Kolkata",
			"bytea_output":                  "escape",
			"client_encoding":               "LATIN1",
			"extra_float_digits":            "-15",
			"search_path":                   "nowhere",
			"standard_conforming_strings":   "off",
			"synchronous_commit":            "off",
			"default_transaction_isolation": "serializable",
			"row_security":                  "off",
			"statement_timeout":             "10s",
			"lock_timeout":                  "1ms",
			"quote_all_identifiers":         "on",
			"enable_indexscan":              "off",
			"jit_above_cost":                "0",
		} {
			f.DB.Exec(t, fmt.Sprintf("ALTER DATABASE %s SET %s = '%s'", f.DB.Name, setting, value))
		}
		r := f.Relay(t).Ready(t)
		f.DB.Exec(t, `INSERT INTO public.outbox (event_id, aggregate_type, aggregate_id, event_type, payload, headers, created_at)
			VALUES ('00000000-0000-4000-8000-000000000001', 'Order', '1', 'created', decode('00ff5c41', 'hex'), '{"f": 0.30000000000000004, "u": "\u00fc\u20ac"}', '2001-02-03 04:05:06.789012+05:30')`)
		records := f.Events(t, 1)
		if got := string(records[0].Value); got != "\x00\xff\\A" {
			t.Errorf("payload %q", got)
		}
		for name, want := range map[string]string{"created_at": "2001-02-02T22:35:06.789012Z", "f": "0.30000000000000004", "u": "ü€"} {
			if got, _ := harness.HeaderOf(records[0], name); got != want {
				t.Errorf("header %s: %q, want %q", name, got, want)
			}
		}
		settled(t, f)
		r.Stop(t)
	})
}

// A relay that has nothing to do is no idle session.
func TestIdleSessionTimeout(t *testing.T) {
	t.Parallel()
	f := fixture.New(t)
	f.DB.Exec(t, fmt.Sprintf("ALTER DATABASE %s SET idle_session_timeout = '1s'", f.DB.Name))
	r := f.Relay(t).Ready(t)
	time.Sleep(6 * time.Second) // a look at the server each five seconds is all that it asks for
	if n := r.Reconnects(t); n > 0 {
		t.Errorf("%d sessions have ended", n)
	}
	r.Stop(t)
}

// settled is Fixture.Settled for a database whose search path does not lead to the table.
func settled(t *testing.T, f *fixture.Fixture) {
	t.Helper()
	f.DB.Eventually(fixture.Within(t, fixture.Limit), t, "0", "SELECT count(*) FROM "+f.Table.SQL()+" WHERE published_at IS NULL")
}

// A server that would keep WAL for a slot until its disk is full is a danger while no relay runs. The
// relay says so, once.
func TestNoLimitOfRetainedWAL(t *testing.T) {
	t.Parallel()
	f := fixture.New(t, fixture.On(harness.Fresh(t, harness.NoSync(), harness.Setting("max_slot_wal_keep_size", "-1"))))
	r := f.Relay(t)
	r.Await(t, "max_slot_wal_keep_size = '10GB'")
	f.DB.Exec(t, "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = '"+f.Slot+"'")
	r.Await(t, "session ended")
	f.DB.Exec(t, "INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ('Order', '1', 'created', '{}')")
	f.Events(t, 1)
	f.Settled(t)
	r.Stop(t)
	if n := strings.Count(r.Log(), "max_slot_wal_keep_size"); n != 1 {
		t.Errorf("it is said %d times:\n%s", n, r.Log())
	}
}
