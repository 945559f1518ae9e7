package faults

import (
	"context"
	"testing"
	"time"

	"walrelay/test/harness"
	"walrelay/test/integration/fixture"
)

// followLimit is how soon the slot of an idle outbox has confirmed what others have written.
const followLimit = 15 * time.Second

// Nobody writes to the outbox and everybody to the tables beside it, or in another database: the slot
// follows, so that it holds back no WAL, and needs no heartbeat table for it.
func TestIdleOutboxOnABusyServer(t *testing.T) {
	for _, other := range []bool{false, true} {
		name := "same database"
		if other {
			name = "other database"
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := fixture.New(t)
			busy := f.DB
			if other {
				busy = f.DB.Server.Database(t)
			}
			busy.Exec(t, "CREATE TABLE busy (n bigint)")
			r := f.Relay(t).Ready(t)
			ctx, cancel := context.WithCancel(t.Context())
			writer := busy.Connect(t)
			ended := make(chan error, 1)
			go func() {
				for ctx.Err() == nil {
					if _, err := writer.Exec(context.WithoutCancel(ctx), "INSERT INTO busy SELECT generate_series(1, 100)"); err != nil {
						ended <- err
						return
					}
				}
				ended <- nil
			}()
			for range 2 {
				written := f.DB.Text(t, "SELECT pg_current_wal_lsn()")
				f.DB.Eventually(fixture.Within(t, followLimit), t, "t",
					"SELECT confirmed_flush_lsn >= '"+written+"' FROM pg_replication_slots WHERE slot_name = '"+f.Slot+"'")
			}
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
			r.Stop(t)
		})
	}
}

// An idle relay asks PostgreSQL one question in five seconds.
func TestIdleRelayAsksLittle(t *testing.T) {
	t.Parallel()
	s := harness.Fresh(t, harness.NoSync(), harness.Setting("log_statement", "all"), harness.Setting("log_line_prefix", "%n %a|"))
	f := fixture.New(t, fixture.On(s))
	r := f.Relay(t).Ready(t)
	f.DB.Exec(t, "INSERT INTO outbox (aggregate_type, aggregate_id, event_type) VALUES ('Order', '1', 'created')")
	f.Events(t, 1)
	f.Settled(t)
	busy := len(s.Statements(t, "walrelay"))
	var idle []harness.Statement
	await(t, "three statements were logged", func() bool {
		idle = s.Statements(t, "walrelay")[busy:]
		return len(idle) >= 3
	})
	if span := idle[2].At - idle[0].At; span < 2*4.9 {
		t.Errorf("three statements in %.1f s: %v", span, idle)
	}
	r.Stop(t)
}
