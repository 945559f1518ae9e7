package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"walrelay/internal/usage"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"
)

const (
	loadWriters = 4   // each has its own keys, so that the order of a key is the order of its writer
	loadRate    = 200 // transactions per second, all writers together
	loadRows    = 10  // of a transaction
	loadKeys    = 100 // of a writer
	catchUp     = 2 * time.Minute
)

// outage is what a broker that was away has cost.
type outage struct {
	Away      float64 `json:"seconds_away"`
	Committed int     `json:"committed"`
	Lost      int     `json:"lost"`
	Swapped   int     `json:"out_of_order"` // first appearances
	Repeated  int     `json:"repeated"`
	Peak      int64   `json:"peak_rss_bytes"`
	Lag       float64 `json:"seconds_to_catch_up"` // from the broker's return, load going on, to the last row of the backlog
}

func (o outage) table() table {
	return table{
		title: "Broker away under load",
		note:  fmt.Sprintf("Killed for %.0f s while %d rows/s were committed, then started again.", o.Away, loadRate*loadRows),
		head:  []string{"committed", "lost", "out of order", "repeated", "peak RSS MiB", "caught up after s"},
		rows: [][]string{{strconv.Itoa(o.Committed), strconv.Itoa(o.Lost), strconv.Itoa(o.Swapped), strconv.Itoa(o.Repeated),
			fmt.Sprintf("%.0f", mib(o.Peak)), fmt.Sprintf("%.1f", o.Lag)}},
	}
}

func (b *bench) outage(ctx context.Context) error {
	d, err := b.database(ctx, "outage")
	if err != nil {
		return err
	}
	o, err := d.outageTurn(ctx)
	if err := errors.Join(err, d.close()); err != nil {
		return err
	}
	b.result.Outage = o
	b.result.bar(fmt.Sprintf("peak RSS, broker away for %.0f s under load", o.Away), mib(o.Peak), "MiB", atMost(64))
	b.result.bar("lost, broker away", float64(o.Lost), "", atMost(0))
	b.result.bar("out of order, broker away", float64(o.Swapped), "", atMost(0))
	return nil
}

func (d *database) outageTurn(ctx context.Context) (o outage, err error) {
	if err := d.slots(ctx, "mark"); err != nil {
		return o, err
	}
	p, err := d.start(ctx, launch{url: d.url("TCP"), slot: d.slot("mark"), after: "mark"})
	if err != nil {
		return o, err
	}
	defer p.Kill()
	writing, stop := context.WithCancel(ctx)
	defer stop()
	var committed atomic.Int64
	var group errgroup.Group
	for w := range loadWriters {
		group.Go(func() error { return d.load(writing, w, &committed) })
	}
	err = d.breakBroker(ctx, p, &o)
	stop()
	if err = errors.Join(err, group.Wait()); err != nil {
		return o, err
	}
	o.Committed = int(committed.Load())
	limited, cancel := context.WithTimeout(ctx, catchUp)
	defer cancel()
	if _, err := d.awaitSettled(limited, p); err != nil {
		return o, err
	}
	if o.Peak, err = usage.Peak(p.Pid()); err != nil {
		return o, errors.Join(err, p.gone())
	}
	if err := p.stop(); err != nil {
		return o, err
	}
	err = d.check(limited, p.topic, &o)
	d.say("%d committed, %d lost, %d out of order, %d repeated, peak %.0f MiB, caught up after %.1f s", o.Committed, o.Lost, o.Swapped, o.Repeated, mib(o.Peak), o.Lag)
	return o, err
}

// breakBroker lets the load run, kills the broker, starts it again when the time is over, and waits
// until what was left behind is on it, while the load goes on.
func (d *database) breakBroker(ctx context.Context, p *process, o *outage) error {
	limited, cancel := context.WithTimeout(ctx, catchUp)
	defer cancel()
	if _, err := d.follow(limited, p, loadRate*loadRows*3); err != nil {
		return err
	}
	d.say("killing the broker for %v", d.last)
	if err := d.broker.Kill(); err != nil {
		return err
	}
	began := time.Now()
	select {
	case <-time.After(d.last):
	case <-p.Done():
		return p.gone()
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := d.broker.Start(ctx); err != nil {
		return err
	}
	back := time.Now()
	o.Away = back.Sub(began).Seconds()
	d.say("the broker is back after %.1f s", o.Away)
	limited, cancel = context.WithTimeout(ctx, catchUp)
	defer cancel()
	caughtUp, err := d.awaitSettled(limited, p)
	o.Lag = caughtUp.Sub(back).Seconds()
	return err
}

// awaitSettled waits until every row that is there now is marked: then Kafka has it, once at least.
func (d *database) awaitSettled(ctx context.Context, p *process) (time.Time, error) {
	id, err := d.lastRow(ctx)
	if err != nil {
		return time.Time{}, err
	}
	at, err := d.settled(ctx, id, "mark")
	if err != nil {
		return at, fmt.Errorf("%w\n%s", errors.Join(err, p.gone()), p.tail())
	}
	return at, nil
}

// load commits at a steady rate until ctx ends. The rows of a writer are numbered, so that a consumer
// sees what is missing and what came too late.
func (d *database) load(ctx context.Context, writer int, committed *atomic.Int64) error {
	conn, err := pgx.Connect(ctx, d.url("unix"))
	if err != nil {
		return fmt.Errorf("connect a writer: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	tick := time.NewTicker(time.Second * loadWriters / loadRate)
	defer tick.Stop()
	for n := 0; ; n += loadRows {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		// Not with ctx: a transaction that ends in the middle may or may not be committed.
		_, err := conn.Exec(context.WithoutCancel(ctx), `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload)
			SELECT 'order', $1::int || '-' || i % $4::int, 'OrderCreated', jsonb_build_object('writer', $1::int, 'number', i, 'note', repeat('x', 240))
			FROM generate_series($2::int, $3::int) i ORDER BY i`, writer, n, n+loadRows-1, loadKeys)
		if err != nil {
			return fmt.Errorf("write under load: %w", err)
		}
		committed.Add(loadRows)
	}
}

// check reads the whole topic. Row i of a writer has key i mod loadKeys, so the rows of a key are
// i, i+loadKeys, i+2·loadKeys and so on.
func (b *bench) check(ctx context.Context, topic string, o *outage) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(b.broker.Addr()), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return fmt.Errorf("make a consumer: %w", err)
	}
	defer client.Close()
	end, err := b.landed(ctx, topic)
	if err != nil {
		return err
	}
	seen := map[string]map[int]bool{}
	last := map[string]int{}
	distinct := 0
	for read := int64(0); read < end; {
		fetches := client.PollFetches(ctx)
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("read %d of %d records: %w", read, end, err)
		}
		for r := range fetches.RecordsAll() {
			read++
			key := string(r.Key)
			n, err := numberOf(r.Value)
			if err != nil {
				return err
			}
			switch {
			case seen[key] == nil:
				seen[key] = map[int]bool{}
			case seen[key][n]:
				o.Repeated++
				continue
			case n < last[key]:
				o.Swapped++
			}
			seen[key][n] = true
			last[key] = max(last[key], n)
			distinct++
		}
	}
	o.Lost = o.Committed - distinct
	return nil
}
