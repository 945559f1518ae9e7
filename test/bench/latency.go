package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"walrelay/internal/usage"

	"golang.org/x/sync/errgroup"
)

const (
	floorRate  = 200 // records per second that the writer produces itself
	warmUp     = 3 * time.Second
	slowRate   = 200
	fastRate   = 2000
	arriveWait = time.Minute // for the last event, when the relay has fallen behind
)

// latency is one measurement, in milliseconds.
type latency struct {
	What    string      `json:"what"`
	Rate    int         `json:"events_per_second"`
	Seconds float64     `json:"seconds"`
	Relay   percentiles `json:"commit_to_consumer_ms"`
	Floor   percentiles `json:"floor_ms"`
	CPU     float64     `json:"cpu_us_per_event"`   // of the relay
	Reached float64     `json:"reached_per_second"` // what the writers came to
}

func latencyTable(all []latency) table {
	t := table{
		title: "Latency",
		note: fmt.Sprintf("Single-row commits. From the moment the commit returned to the moment a consumer in the same process has the record. "+
			"The floor is %d records/s that the writer produced to Kafka itself in between, seen by the same consumer.", floorRate),
		head: []string{"commits/s", "reached", "", "p50 ms", "p99 ms", "max ms", "relay CPU µs/event"},
	}
	for _, l := range all {
		row := func(what string, p percentiles, cpu string) {
			t.rows = append(t.rows, []string{strconv.Itoa(l.Rate), fmt.Sprintf("%.0f", l.Reached), what,
				fmt.Sprintf("%.2f", p.P50), fmt.Sprintf("%.2f", p.P99), fmt.Sprintf("%.2f", p.Max), cpu})
		}
		row(l.What, l.Relay, fmt.Sprintf("%.0f", l.CPU))
		row("floor", l.Floor, "")
		row("above the floor", percentiles{P50: l.Relay.P50 - l.Floor.P50, P99: l.Relay.P99 - l.Floor.P99, Max: l.Relay.Max - l.Floor.Max}, "")
	}
	return t
}

func (b *bench) latency(ctx context.Context) error {
	d, err := b.database(ctx, "latency")
	if err != nil {
		return err
	}
	err = d.latencies(ctx)
	if err := errors.Join(err, d.close()); err != nil {
		return err
	}
	for _, l := range b.result.Latencies {
		if l.What != streamed {
			continue
		}
		p50, p99 := published, published
		if l.Rate == slowRate {
			p50, p99 = atMost(0.5), atMost(3)
		}
		b.result.bar(fmt.Sprintf("latency at %d events/s, p50 above the floor", l.Rate), l.Relay.P50-l.Floor.P50, "ms", p50)
		b.result.bar(fmt.Sprintf("latency at %d events/s, p99 above the floor", l.Rate), l.Relay.P99-l.Floor.P99, "ms", p99)
	}
	return nil
}

func (d *database) latencies(ctx context.Context) error {
	for _, rate := range []int{slowRate, fastRate} {
		slot := fmt.Sprintf("mark_%d", rate)
		if err := d.slots(ctx, slot); err != nil {
			return err
		}
		l, err := d.measure(ctx, launch{url: d.url("TCP"), slot: d.slot(slot), after: "mark"}, rate)
		if err != nil {
			return err
		}
		l.What = streamed
		d.sayLatency(l)
	}
	return nil
}

// streamed is what the relay is called in the tables, where it does not poll.
const streamed = "walrelay"

func (d *database) sayLatency(l latency) {
	d.say("%s, %d commits/s (reached %.0f): p50 %.2f p99 %.2f ms; floor p50 %.2f p99 %.2f ms; relay %.0f µs CPU/event",
		l.What, l.Rate, l.Reached, l.Relay.P50, l.Relay.P99, l.Floor.P50, l.Floor.P99, l.CPU)
	d.result.Latencies = append(d.result.Latencies, l)
}

// measure commits at a steady rate and produces records of the same size in between.
func (d *database) measure(ctx context.Context, r launch, rate int) (l latency, err error) {
	p, err := d.start(ctx, r)
	if err != nil {
		return l, err
	}
	defer p.Kill()
	floorTopic := r.slot + ".floor"
	if err := d.topic(ctx, floorTopic); err != nil {
		return l, err
	}
	defer d.forget(p.topic, floorTopic)
	if err := d.awaitRelay(ctx, r, p); err != nil {
		return l, err
	}
	length := warmUp + d.last
	began := time.Now()
	events := newFlights(began, int(length.Seconds()*float64(rate)))
	floor := newFlights(began, int(length.Seconds()*floorRate))

	ctx, cancel := context.WithTimeout(ctx, length+arriveWait)
	defer cancel()
	arrived, stopConsumer := context.WithCancel(ctx)
	var consuming errgroup.Group
	consuming.Go(func() error {
		defer cancel() // without a consumer there is nothing to wait for
		return consume(arrived, d.broker.Addr(), map[string]*flights{p.topic: events, floorTopic: floor})
	})
	cpu, _ := usage.CPU(p.Pid())
	writing, wctx := errgroup.WithContext(ctx)
	writing.Go(func() error { return d.commitAll(wctx, events, rate) })
	writing.Go(func() error { return d.produceAll(wctx, floor, floorTopic) })
	err = writing.Wait()
	l.Reached = float64(len(events.left)) / time.Since(began).Seconds()
	for err == nil && events.missing.Load()+floor.missing.Load() > 0 {
		select {
		case <-ctx.Done():
			landed, _ := d.landed(context.WithoutCancel(ctx), p.topic) // only for the message
			err = fmt.Errorf("%d events (%d are on topic %s) and %d records of the floor have not arrived: %w",
				events.missing.Load(), landed, p.topic, floor.missing.Load(), ctx.Err())
		case <-p.Done():
			err = p.gone()
		case <-time.After(10 * time.Millisecond):
		}
	}
	after, cerr := usage.CPU(p.Pid())
	stopConsumer()
	if err := errors.Join(err, cerr, consuming.Wait()); err != nil {
		return l, fmt.Errorf("%w\n%s", err, p.tail())
	}
	l.Rate, l.Seconds = rate, d.last.Seconds()
	l.CPU = float64((after - cpu).Microseconds()) / float64(len(events.left))
	l.Relay = events.summary(int(warmUp.Seconds() * float64(rate)))
	l.Floor = floor.summary(int(warmUp.Seconds() * floorRate))
	return l, p.stop()
}

// awaitRelay returns when the relay has taken the slot, or the lock of a relay that polls.
func (d *database) awaitRelay(ctx context.Context, r launch, p *process) error {
	for {
		var active bool
		err := d.conn.QueryRow(ctx, `SELECT CASE WHEN $2 THEN EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))
			ELSE EXISTS (SELECT FROM pg_replication_slots WHERE slot_name = $1 AND active) END`, r.slot, r.mode == polling).Scan(&active)
		if err != nil {
			return fmt.Errorf("look whether the relay has begun: %w", err)
		}
		if active {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-p.Done():
			return p.gone()
		case <-time.After(10 * time.Millisecond):
		}
	}
}
