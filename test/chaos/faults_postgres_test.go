package chaos

import (
	"context"
	"math/rand/v2"
	"time"

	"walrelay/internal/localdev"
	"walrelay/test/harness"
	"walrelay/test/harness/oracle"
	"walrelay/test/integration/fixture"
)

const (
	walsender = "backend_type = 'walsender'"
	sqlClient = "backend_type = 'client backend' AND application_name = 'walrelay'"

	// stopLimit is how long a fast shutdown may take: it waits for walsenders, and the relay gives Kafka
	// five seconds before it lets the server go.
	stopLimit = 20 * time.Second
)

func postgresFaults() []fault {
	all := []fault{
		{"walsender terminated", always, true, func(w *world, _ *rand.Rand) {
			w.inject("walsender terminated", "")
			w.cutOff(walsender)
		}},
		{"SQL backend terminated", short, false, func(w *world, _ *rand.Rand) {
			w.inject("SQL backend terminated", "")
			w.cutOff(sqlClient)
		}},
		{"PostgreSQL fast restart", always, false, func(w *world, r *rand.Rand) { w.restartPostgres(r, localdev.Fast) }},
		{"PostgreSQL immediate restart", short, false, func(w *world, r *rand.Rand) { w.restartPostgres(r, localdev.Immediate) }},
		{"outbox locked", short, false, func(w *world, r *rand.Rand) {
			mode := []string{"ACCESS EXCLUSIVE", "EXCLUSIVE", "SHARE"}[r.IntN(3)]
			d := w.between(r, 5*time.Second, 25*time.Second)
			w.inject("outbox locked", "%s for %v", mode, d.Round(time.Millisecond))
			w.holdOpen(r, d, "LOCK TABLE outbox IN "+mode+" MODE")
		}},
		{"rows locked", short, false, func(w *world, r *rand.Rand) {
			d := w.between(r, 5*time.Second, 15*time.Second)
			w.inject("rows locked", "the newest 100 for %v", d.Round(time.Millisecond))
			w.holdOpen(r, d, "SELECT id FROM outbox ORDER BY id DESC LIMIT 100 FOR UPDATE")
		}},
		{"long transaction", short, false, longTransaction},
		{"services cut off", short, false, func(w *world, r *rand.Rand) {
			n := 5 + r.IntN(20)
			w.inject("services cut off", "%d times: answers to COMMIT are lost", n)
			for range n {
				w.services.Cut()
				w.wait(time.Duration(20+r.IntN(200)) * time.Millisecond)
			}
		}},
	}
	return append(all, lineFaults("PostgreSQL", func(w *world) *harness.Proxy { return w.pg })...)
}

// cutOff ends backends of the relay's, as an administrator does.
func (w *world) cutOff(which string) {
	w.f.DB.Exec(w.t, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND "+which)
}

func (w *world) restartPostgres(r *rand.Rand, mode localdev.Mode) {
	d := w.between(r, 0, 8*time.Second)
	w.inject("PostgreSQL "+mode.String()+" restart", "away for %v", d.Round(time.Millisecond))
	w.ledger.forget()
	server := w.f.DB.Server.Control()
	began := time.Now()
	if err := server.Stop(fixture.Within(w.t, fixture.Limit), mode); err != nil {
		w.broke(harmless, "the server does not stop: %v", err)
		if err := server.Kill(); err != nil {
			w.t.Fatal(err)
		}
	} else if took := time.Since(began); took > stopLimit {
		w.broke(harmless, "the server took %v for a %s shutdown", took, mode)
	}
	w.hold(r, d)
	if err := server.Start(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
}

// holdOpen keeps a transaction open that has run the statement.
func (w *world) holdOpen(r *rand.Rand, d time.Duration, statement string) {
	ctx, cancel := context.WithTimeout(w.t.Context(), d+fixture.Limit)
	defer cancel()
	tx, err := w.f.DB.Connect(w.t).Begin(ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	if _, err := tx.Exec(ctx, statement); err != nil {
		w.t.Fatal(err)
	}
	w.hold(r, d)
	if err := tx.Rollback(ctx); err != nil {
		w.t.Fatal(err)
	}
}

// longTransaction writes rows that are committed long after they were inserted, behind rows with higher
// ids.
func longTransaction(w *world, r *rand.Rand) {
	d := w.between(r, 5*time.Second, 20*time.Second)
	w.inject("long transaction", "of %v", d.Round(time.Millisecond))
	events := make([]oracle.Event, 1+r.IntN(300))
	for i := range events {
		events[i] = w.event(r, "slow", int(time.Since(w.began).Milliseconds())*1000+i)
	}
	ready, ended := make(chan struct{}), make(chan error, 1)
	w.group.Go(func() error {
		ctx, cancel := context.WithTimeout(w.ctx, d+commitLimit)
		defer cancel()
		ended <- w.slow.CommitWhen(ctx, ready, events...)
		return nil
	})
	w.hold(r, d)
	close(ready)
	if err := <-ended; err != nil {
		w.t.Fatal(err)
	}
}

// lineFaults are those of the line between the relay and a server.
func lineFaults(what string, line func(*world) *harness.Proxy) []fault {
	return []fault{
		{what + ": latency", short, false, func(w *world, r *rand.Rand) {
			delay, d := time.Duration(10+r.IntN(90))*time.Millisecond, w.between(r, 5*time.Second, 15*time.Second)
			w.inject(what+": latency", "%v for %v", delay, d.Round(time.Millisecond))
			line(w).Delay(delay)
			w.hold(r, d)
			line(w).Delay(0)
		}},
		{what + ": bandwidth", short, false, func(w *world, r *rand.Rand) {
			rate, d := 400_000+r.IntN(600_000), w.between(r, 5*time.Second, 15*time.Second)
			w.inject(what+": bandwidth", "%d bytes/s for %v", rate, d.Round(time.Millisecond))
			line(w).Rate(rate)
			w.hold(r, d)
			line(w).Rate(0)
		}},
		{what + ": half-open", short, false, func(w *world, r *rand.Rand) {
			d := w.between(r, 5*time.Second, 30*time.Second)
			cut := r.IntN(2) == 0
			w.inject(what+": half-open", "for %v, then cut: %v", d.Round(time.Millisecond), cut)
			line(w).Pause()
			w.hold(r, d)
			if cut {
				line(w).Cut()
			}
			line(w).Resume()
		}},
		{what + ": reset", short, false, func(w *world, r *rand.Rand) {
			d := w.between(r, 0, 10*time.Second)
			w.inject(what+": reset", "connections refused for %v", d.Round(time.Millisecond))
			line(w).Refuse()
			line(w).Cut()
			w.hold(r, d)
			line(w).Resume()
		}},
	}
}
