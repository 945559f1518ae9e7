package environment

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"walrelay/internal/localdev"
	"walrelay/internal/postgres"
	"walrelay/test/harness"
	"walrelay/test/harness/oracle"
	"walrelay/test/integration/fixture"
)

// The primary is lost and its standby promoted, with the slot that PostgreSQL 17 and later keep in
// step there. The relay finds the new primary by itself and goes on: nothing is lost, the order is
// kept, and what was settled on the old one only is settled again.
func TestFailover(t *testing.T) {
	t.Parallel()
	for _, major := range []int{17, 18} {
		t.Run(fmt.Sprintf("postgres-%d", major), func(t *testing.T) {
			t.Parallel()
			p := newPair(t, major, map[string]string{"synchronized_standby_slots": "standby"}, map[string]string{"sync_replication_slots": "on"})
			r := p.Relay(t).Ready(t)
			all := oracle.Load{Until: 500}.Run(t.Context(), t, p.DB, p.Table)
			p.awaitSlot(t)
			// Another 500, and the primary dies with the last commit: some of it is not published, some
			// published and not confirmed, and the standby's slot is older than what was confirmed.
			all = append(all, oracle.Load{Until: 500}.Run(t.Context(), t, p.DB, p.Table)...)
			p.fail(t)
			all = append(all, oracle.Load{Until: 500}.Run(t.Context(), t, p.DB, p.Table)...)
			p.Settled(t)
			v := p.Verify(t, all)
			t.Logf("%d events, %d of them twice", len(all), v.Duplicates)
			last := p.Consumer(t).Records()[len(p.Consumer(t).Records())-1]
			if position, _ := harness.HeaderOf(last, "position"); !strings.HasPrefix(position, "00000002/") {
				t.Errorf("position %s after the failover, which began timeline 2", position)
			}
			r.Stop(t)
		})
	}
}

// Before PostgreSQL 17 a promoted standby has no slot. What it would have carried cannot be known from
// the stream, so the relay says so and ends; it does not begin anew in silence.
func TestFailoverWithoutSlot(t *testing.T) {
	t.Parallel()
	p := newPair(t, 0, nil, nil)
	p.Setenv("REPLICATION_FAILOVER", "false")
	r := p.Relay(t).Ready(t)
	all := oracle.Load{Until: 100}.Run(t.Context(), t, p.DB, p.Table)
	p.fail(t)
	err := r.Wait(t)
	var mode *postgres.ModeError
	if !errors.As(err, &mode) || !strings.Contains(err.Error(), p.Slot) || !strings.Contains(mode.Remedy, "published_at") {
		t.Errorf("the relay ended with %v", err)
	}
	if got := p.DB.Text(t, "SELECT count(*) FROM outbox"); got != fmt.Sprint(len(all)) {
		t.Errorf("%s rows are in the table, %d were written", got, len(all))
	}
}

// pair is a primary with a synchronous standby, and a fixture whose relay may use either.
type pair struct {
	*fixture.Fixture
	primary, standby *harness.Server
}

// newPair copies the stopped primary, which needs no tool but cp.
func newPair(t *testing.T, major int, primarySettings, standbySettings map[string]string) *pair {
	t.Helper()
	p := &pair{primary: harness.Fresh(t, harness.Major(major)), standby: harness.Fresh(t, harness.Major(major))}
	ctx := fixture.Within(t, fixture.Limit)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	primary, standby := p.primary.Control(), p.standby.Control()
	postgres := &harness.Database{Server: p.primary, Name: "postgres"}
	postgres.Exec(t, "SELECT pg_create_physical_replication_slot('standby', true)")
	must(primary.Stop(ctx, localdev.Fast))
	must(standby.Stop(ctx, localdev.Fast))
	data := filepath.Join(standby.Dir(), "data")
	must(os.RemoveAll(data))
	must(exec.Command("cp", "-a", filepath.Join(primary.Dir(), "data"), data).Run())
	must(os.WriteFile(filepath.Join(data, "standby.signal"), nil, 0o644))
	primary.Configure(primarySettings)
	standby.Configure(map[string]string{
		"primary_conninfo":     fmt.Sprintf("host=127.0.0.1 port=%d user=postgres dbname=postgres application_name=standby", primary.Port()),
		"primary_slot_name":    "standby",
		"hot_standby_feedback": "on",
	})
	standby.Configure(standbySettings)
	must(primary.Start(ctx))
	must(standby.Start(ctx))
	postgres.Eventually(ctx, t, "1", "SELECT count(*) FROM pg_stat_replication WHERE application_name = 'standby' AND state = 'streaming'")
	// What is committed is on the standby.
	postgres.Exec(t, "ALTER SYSTEM SET synchronous_standby_names = 'standby'")
	postgres.Exec(t, "SELECT pg_reload_conf()")
	postgres.Eventually(ctx, t, "sync", "SELECT sync_state FROM pg_stat_replication WHERE application_name = 'standby'")
	p.Fixture = fixture.New(t, fixture.On(p.primary))
	p.Setenv("DATABASE_URL", fmt.Sprintf("postgres://postgres@127.0.0.1:%d,127.0.0.1:%d/%s?sslmode=disable&target_session_attrs=read-write",
		primary.Port(), standby.Port(), p.DB.Name))
	return p
}

// awaitSlot waits until the relay's slot on the standby would survive a promotion. The primary must
// log what runs, and the relay confirm it, before that is so.
func (p *pair) awaitSlot(t *testing.T) {
	t.Helper()
	ctx := fixture.Within(t, 2*fixture.Limit)
	standby := &harness.Database{Server: p.standby, Name: "postgres"}
	for {
		p.DB.Exec(t, "SELECT pg_log_standby_snapshot()")
		if standby.Text(t, "SELECT count(*) FROM pg_replication_slots WHERE slot_name = '"+p.Slot+"' AND synced AND NOT temporary AND invalidation_reason IS NULL") == "1" {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("the slot does not come to the standby: %v", ctx.Err())
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// fail kills the primary and promotes the standby; the fixture goes on there.
func (p *pair) fail(t *testing.T) {
	t.Helper()
	if err := p.primary.Control().Stop(context.WithoutCancel(t.Context()), localdev.Immediate); err != nil {
		t.Fatal(err)
	}
	p.DB = &harness.Database{Server: p.standby, Name: p.DB.Name}
	if got := p.DB.Text(t, "SELECT pg_promote()"); got != "t" {
		t.Fatalf("pg_promote: %s", got)
	}
}
