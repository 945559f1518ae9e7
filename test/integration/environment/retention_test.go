package environment

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"walrelay/test/harness"
	"walrelay/test/integration/fixture"
)

// Rows that were published long ago are deleted, by the relay that leads, in either mode; none that is
// not published, none that is young, and none that somebody has locked.
func TestRetention(t *testing.T) {
	oldestAndNewest(t, func(t *testing.T, s *harness.Server) {
		for _, mode := range []string{"wal", "polling"} {
			f := fixture.New(t, fixture.On(s), fixture.Set("RELAY_MODE", mode), fixture.Set("OUTBOX_RETENTION", "24h"), fixture.Set("POLLING_INTERVAL", "1m"))
			first := f.Relay(t).Ready(t) // nothing is old yet; the slot is there
			locker := f.DB.Connect(t)
			lock, err := locker.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			first.Stop(t)
			f.DB.Exec(t, `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, published_at) SELECT 'Order', n::text, 'created', now() FROM generate_series(1, 5000) n`)
			f.DB.Exec(t, `UPDATE outbox SET published_at = CASE WHEN id % 100 = 0 THEN NULL WHEN id <= 3500 THEN now() - interval '25 hours' ELSE now() - interval '23 hours' END`)
			if _, err := lock.Exec(t.Context(), "SELECT FROM outbox WHERE id IN (7, 2001) FOR UPDATE"); err != nil {
				t.Fatal(err)
			}
			left := "SELECT count(*) FILTER (WHERE published_at < now() - interval '24 hours') || ' old, ' || count(*) FILTER (WHERE published_at > now() - interval '24 hours' AND id > 3500 AND id % 100 <> 0) || ' young' FROM outbox"
			r := f.Relay(t).Ready(t)
			f.DB.Eventually(fixture.Within(t, fixture.Limit), t, "2 old, 1485 young", left)
			if n := f.DB.Text(t, "SELECT count(*) FROM outbox WHERE id % 100 = 0"); n != "50" {
				t.Errorf("%s: %s of 50 rows that were not published are left", mode, n)
			}
			if n := r.Metric(t, "walrelay_retention_rows_deleted_total"); n != 3463 {
				t.Errorf("%s: %v rows are counted as deleted, want 3463", mode, n)
			}
			if err := lock.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
			r.Stop(t)
			second := f.Relay(t).Ready(t)
			f.DB.Eventually(fixture.Within(t, fixture.Limit), t, "0 old, 1485 young", left)
			second.Stop(t)
		}
	})
}

// A role that may not delete is told what to type, once; events flow.
func TestRetentionWithoutTheRight(t *testing.T) {
	t.Parallel()
	f := fixture.New(t, fixture.Set("RELAY_MODE", "polling"), fixture.Set("OUTBOX_RETENTION", "1h"))
	role := f.Slot + "_keeper"
	f.DB.Exec(t, fmt.Sprintf("CREATE ROLE %s LOGIN; GRANT SELECT, UPDATE (published_at) ON outbox TO %s", role, role))
	defer func() { f.DB.Exec(t, fmt.Sprintf("DROP OWNED BY %s; DROP ROLE %s", role, role)) }()
	f.DB.Exec(t, "INSERT INTO outbox (aggregate_type, aggregate_id, event_type, published_at) VALUES ('Order', '1', 'created', now() - interval '2 hours'), ('Order', '1', 'created', NULL)")
	cfg, err := pgx.ParseConfig(f.DB.URL())
	if err != nil {
		t.Fatal(err)
	}
	f.Setenv("DATABASE_URL", fmt.Sprintf("postgres://%s@%s:%d/%s", role, cfg.Host, cfg.Port, cfg.Database))
	r := f.Relay(t).Ready(t)
	r.Await(t, `GRANT DELETE ON \"public\".\"outbox\"`)
	f.Events(t, 1)
	f.Settled(t)
	r.Stop(t)
	if n := f.DB.Text(t, "SELECT count(*) FROM outbox"); n != "2" {
		t.Errorf("%s rows are left, want 2", n)
	}
}
