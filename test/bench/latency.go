package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"
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
	Rate    int         `json:"events_per_second"`
	Seconds float64     `json:"seconds"`
	Relay   percentiles `json:"commit_to_consumer_ms"`
	Floor   percentiles `json:"floor_ms"`
	CPU     float64     `json:"cpu_us_per_event"`   // of the relay
	Reached float64     `json:"reached_per_second"` // what the writers came to
}

type percentiles struct {
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
	N   int64   `json:"n"`
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
		row("walrelay", l.Relay, fmt.Sprintf("%.0f", l.CPU))
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
		l, err := d.measure(ctx, slot, rate)
		if err != nil {
			return err
		}
		d.say("%d commits/s (reached %.0f): p50 %.2f p99 %.2f ms; floor p50 %.2f p99 %.2f ms; relay %.0f µs CPU/event",
			rate, l.Reached, l.Relay.P50, l.Relay.P99, l.Floor.P50, l.Floor.P99, l.CPU)
		d.result.Latencies = append(d.result.Latencies, l)
	}
	return nil
}

// flights are the times of numbered events, in nanoseconds since the measurement began; 0 is not yet.
// Consumer and writer race: the record may be there before the writer's commit has returned.
type flights struct {
	began      time.Time
	left, seen []atomic.Int64
	missing    atomic.Int64
}

func newFlights(began time.Time, n int) *flights {
	f := &flights{began: began, left: make([]atomic.Int64, n), seen: make([]atomic.Int64, n)}
	f.missing.Store(int64(n))
	return f
}

func (f *flights) leave(i int) { f.left[i].Store(int64(time.Since(f.began))) }

func (f *flights) arrive(i int, at time.Time) {
	if f.seen[i].CompareAndSwap(0, int64(at.Sub(f.began))) {
		f.missing.Add(-1)
	}
}

// summary leaves out the events of the warm-up.
func (f *flights) summary(from int) percentiles {
	h := hdrhistogram.New(1, int64(5*time.Minute/time.Microsecond), 3)
	for i := from; i < len(f.left); i++ {
		us := (f.seen[i].Load() - f.left[i].Load()) / 1000
		_ = h.RecordValue(max(us, 1)) // bounded by arriveWait
	}
	ms := func(us int64) float64 { return float64(us) / 1000 }
	return percentiles{P50: ms(h.ValueAtPercentile(50)), P99: ms(h.ValueAtPercentile(99)), Max: ms(h.Max()), N: h.TotalCount()}
}

// measure commits at a steady rate and produces records of the same size in between.
func (d *database) measure(ctx context.Context, slot string, rate int) (l latency, err error) {
	p, err := d.start(ctx, launch{url: d.url("TCP"), slot: d.slot(slot), after: "mark"})
	if err != nil {
		return l, err
	}
	defer p.Kill()
	floorTopic := d.slot(slot) + ".floor"
	if err := d.topic(ctx, floorTopic); err != nil {
		return l, err
	}
	defer d.forget(p.topic, floorTopic)
	if err := d.awaitStream(ctx, slot, p); err != nil {
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
	cpu, _ := cpuOf(p.Pid())
	writing, wctx := errgroup.WithContext(ctx)
	writing.Go(func() error { return d.commitAll(wctx, events, rate) })
	writing.Go(func() error { return d.produceAll(wctx, floor, floorTopic) })
	err = writing.Wait()
	l.Reached = float64(len(events.left)) / time.Since(began).Seconds()
	for err == nil && events.missing.Load()+floor.missing.Load() > 0 {
		select {
		case <-ctx.Done():
			err = fmt.Errorf("%d events and %d records of the floor have not arrived: %w", events.missing.Load(), floor.missing.Load(), ctx.Err())
		case <-p.Done():
			err = p.gone()
		case <-time.After(10 * time.Millisecond):
		}
	}
	after, cerr := cpuOf(p.Pid())
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

// awaitStream returns when the relay has taken the slot.
func (d *database) awaitStream(ctx context.Context, slot string, p *process) error {
	for {
		var active bool
		if err := d.conn.QueryRow(ctx, "SELECT active FROM pg_replication_slots WHERE slot_name = $1", d.slot(slot)).Scan(&active); err != nil {
			return fmt.Errorf("look at slot %s: %w", d.slot(slot), err)
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

// commitAll commits event after event when its time has come, with as many connections as the rate
// needs: a commit waits for the disk.
func (d *database) commitAll(ctx context.Context, f *flights, rate int) error {
	writers := 1 + rate/250
	var next atomic.Int64
	group, ctx := errgroup.WithContext(ctx)
	for range writers {
		group.Go(func() error {
			conn, err := pgx.Connect(ctx, d.url("unix"))
			if err != nil {
				return fmt.Errorf("connect a writer: %w", err)
			}
			defer conn.Close(context.WithoutCancel(ctx))
			for {
				i := int(next.Add(1) - 1)
				if i >= len(f.left) {
					return nil
				}
				if err := sleepUntil(ctx, f.began.Add(time.Duration(i)*time.Second/time.Duration(rate))); err != nil {
					return err
				}
				_, err := conn.Exec(ctx, `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ('order', $1, 'OrderCreated', $2)`,
					strconv.Itoa(i%1000), string(body(i)))
				if err != nil {
					return fmt.Errorf("commit event %d: %w", i, err)
				}
				f.leave(i)
			}
		})
	}
	return group.Wait()
}

// produceAll produces record after record, each in the middle between two commits of the slow rate,
// as walrelay's own producer does: no linger, all acknowledgements, the same compression.
func (d *database) produceAll(ctx context.Context, f *flights, topic string) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(d.broker.Addr()), kgo.ProducerLinger(0), kgo.ProducerBatchCompression(kgo.SnappyCompression()),
		kgo.DefaultProduceTopic(topic), kgo.RequiredAcks(kgo.AllISRAcks()))
	if err != nil {
		return fmt.Errorf("make a producer: %w", err)
	}
	defer client.Close()
	const pause = time.Second / floorRate
	var failed atomic.Pointer[error]
	for i := range f.left {
		if err := sleepUntil(ctx, f.began.Add(time.Duration(i)*pause+pause/2)); err != nil {
			return err
		}
		record := &kgo.Record{Key: []byte(strconv.Itoa(i % 1000)), Value: body(i), Headers: floorHeaders(), Timestamp: time.Now()}
		f.leave(i)
		client.Produce(ctx, record, func(_ *kgo.Record, err error) {
			if err != nil {
				failed.CompareAndSwap(nil, &err)
			}
		})
	}
	if err := client.Flush(ctx); err != nil {
		return fmt.Errorf("produce the floor: %w", err)
	}
	if err := failed.Load(); err != nil {
		return fmt.Errorf("produce the floor: %w", *err)
	}
	return nil
}

// floorHeaders are as many and as long as those of a relayed record.
func floorHeaders() []kgo.RecordHeader {
	header := func(key, value string) kgo.RecordHeader { return kgo.RecordHeader{Key: key, Value: []byte(value)} }
	return []kgo.RecordHeader{
		header("event_id", "00000000-0000-4000-8000-000000000000"), header("event_type", "OrderCreated"), header("aggregate_type", "order"),
		header("aggregate_id", "customer-0"), header("created_at", "2026-11-30T10:00:00.123456Z"), header("position", "00000001/0000000001928750/00000000"),
	}
}

// body is about 300 bytes of JSON that hold the number.
func body(i int) []byte {
	const note = "a customer of the shop rang twice and asked for the parcel to be left with the neighbour of the house across the street; " +
		"the courier has been told, the order is otherwise unchanged and is to be delivered on the day that was agreed at checkout, by noon"
	return fmt.Appendf(nil, `{"note": %q, "number": %d}`, note, i)
}

func numberOf(value []byte) (int, error) {
	var event struct{ Number int }
	if err := json.Unmarshal(value, &event); err != nil {
		return 0, fmt.Errorf("read the number of an event: %w", err)
	}
	return event.Number, nil
}

// consume notes the arrival of every record of the topics until ctx ends.
func consume(ctx context.Context, addr string, topics map[string]*flights) error {
	opts := []kgo.Opt{kgo.SeedBrokers(addr), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())}
	for topic := range topics {
		opts = append(opts, kgo.ConsumeTopics(topic))
	}
	client, err := kgo.NewClient(opts...)
	if err != nil {
		return fmt.Errorf("make a consumer: %w", err)
	}
	defer client.Close()
	for ctx.Err() == nil {
		fetches := client.PollFetches(ctx)
		at := time.Now()
		for r := range fetches.RecordsAll() {
			i, err := numberOf(r.Value)
			if err != nil {
				return err
			}
			topics[r.Topic].arrive(i, at)
		}
	}
	return nil
}

func sleepUntil(ctx context.Context, at time.Time) error {
	d := time.Until(at)
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
