package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"walrelay/migrations"
)

const (
	polling      = "polling"
	pollInterval = 500 * time.Millisecond // the default, which is what is measured
)

// polling measures a relay that asks the table: how fast it drains it, how long an event is on its way
// when NOTIFY wakes it and when only the interval does, and what it asks when there is nothing.
func (b *bench) polling(ctx context.Context) error {
	d, err := b.database(ctx, polling)
	if err != nil {
		return err
	}
	err = d.polls(ctx)
	return errors.Join(err, d.close(), execute(ctx, b.pg.SocketURL("postgres"), "DROP ROLE IF EXISTS "+idleRole))
}

func (d *database) polls(ctx context.Context) error {
	for _, after := range []string{"mark", "delete"} {
		if _, err := d.conn.Exec(ctx, "TRUNCATE outbox RESTART IDENTITY"); err != nil {
			return fmt.Errorf("empty the table: %w", err)
		}
		if err := d.fill(ctx, d.rows, perTransaction); err != nil {
			return err
		}
		f, err := d.polled(ctx, after)
		if err != nil {
			return err
		}
		d.sayFigures(f)
		d.result.Polled = append(d.result.Polled, f)
		bar := atLeast(15_000)
		if after == "delete" {
			bar = atLeast(30_000)
		}
		d.result.bar("polling drain, "+after+", settled", f.Settled, "rows/s", bar)
		d.result.bar("peak RSS, polling drain, "+after, mib(f.Peak), "MiB", atMost(64))
	}
	if err := d.pollLatencies(ctx); err != nil {
		return err
	}
	return d.pollIdle(ctx)
}

// polled drains the table.
func (d *database) polled(ctx context.Context, after string) (figures, error) {
	ctx, cancel := context.WithTimeout(ctx, drainLimit)
	defer cancel()
	p, err := d.start(ctx, launch{url: d.url("TCP"), slot: d.slot("drain_" + after), after: after, mode: polling})
	if err != nil {
		return figures{}, err
	}
	defer p.Kill()
	defer d.forget(p.topic)
	s, err := d.follow(ctx, p, int64(d.rows))
	if err != nil {
		return figures{}, err
	}
	f := figures{
		What: "polling, " + after, Socket: "TCP", Rows: d.rows, Rate: s.rate(s.last), CPU: s.cpu(), Peak: s.peak,
		FromStart: s.last.at.Sub(p.started).Seconds(), First: s.first.at.Sub(p.started).Seconds(),
	}
	at, err := d.settled(ctx, int64(d.rows), after)
	if err != nil {
		return f, errors.Join(err, p.gone())
	}
	s.last.at = at
	f.Settled = s.rate(s.last)
	if err := p.stop(); err != nil {
		return f, err
	}
	return f, d.whole(ctx, p.topic, int64(d.rows))
}

// pollLatencies is first without the trigger, then with it.
func (d *database) pollLatencies(ctx context.Context) error {
	for _, notify := range []string{"off", "on"} {
		what := "polling"
		if notify == "on" {
			what += " + NOTIFY"
			options, err := defaultOptions()
			if err != nil {
				return err
			}
			options.Notify = true
			if _, err := migrations.Up(ctx, d.conn, options); err != nil {
				return err
			}
		}
		l, err := d.measure(ctx, launch{url: d.url("TCP"), slot: d.slot("notify_" + notify), after: "mark", mode: polling, env: []string{"POLLING_NOTIFY=" + notify}}, slowRate)
		if err != nil {
			return err
		}
		l.What = what
		d.sayLatency(l)
		p50, p99 := published, published
		if notify == "on" {
			p50, p99 = atMost(3), atMost(15)
		}
		d.result.bar(fmt.Sprintf("%s at %d events/s, p50 above the floor", what, slowRate), l.Relay.P50-l.Floor.P50, "ms", p50)
		d.result.bar(fmt.Sprintf("%s at %d events/s, p99 above the floor", what, slowRate), l.Relay.P99-l.Floor.P99, "ms", p99)
	}
	return nil
}

func (d *database) pollIdle(ctx context.Context) error {
	i, err := d.idleTurn(ctx, launch{slot: d.slot("idle"), after: "mark", mode: polling})
	if err != nil {
		return err
	}
	perInterval := float64(i.Statements) / i.Seconds * pollInterval.Seconds()
	d.say("polling, idle: %.2f statements per interval, %.1f ms CPU per second, %.0f MiB", perInterval, i.CPU, mib(i.Peak))
	d.result.PollIdle = i
	d.result.bar("SQL statements of an idle relay that polls, per interval", perInterval, "", atMost(1))
	d.result.bar("CPU of an idle relay that polls", i.CPU, "ms/s", atMost(5))
	return nil
}
