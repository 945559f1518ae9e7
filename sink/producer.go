// Package sink hands records to Kafka and tells, for each, when Kafka has it.
//
// A record that Produce took is either acknowledged by all in-sync replicas or reported as failed,
// exactly once, and records of one key reach their partition in the order of Produce. What a broker
// would reject and we can know is refused before it is sent.
package sink

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"
)

// Acker is told, once for each Produce that returned nil, what became of the record: err is nil when
// Kafka has it on all in-sync replicas, and otherwise one that Classify sorts. After an error the
// record may or may not be on its topic, and later records of the same partition may have landed.
//
// Acked runs on the one goroutine that all promises run on, in the order of each partition: a few
// atomics and nothing that waits.
type Acker interface {
	Acked(token uint64, err error)
}

// Producer is the Kafka side of the relay. It outlives sessions. Produce may be called from one
// goroutine at a time; everything else from any.
type Producer struct {
	cfg     Config
	log     *slog.Logger
	reg     prometheus.Registerer
	opts    []kgo.Opt
	metrics *metrics
	reach   *reach
	connect []kgo.Opt // how to reach a broker: TLS and login
	topics  *topics
	pool    pool
	ages    ages
	wake    chan struct{}
	ended   context.Context // for Hurry

	client      atomic.Pointer[kgo.Client]
	outstanding atomic.Int64
	draining    atomic.Bool   // nothing is taken until the client has been replaced
	doubted     atomic.Bool   // a broker's error has failed a record: the client may be of no more use
	drained     chan struct{} // nudged when draining and outstanding is 0
}

// New checks the configuration and prepares the client, which connects when it is first needed.
// Nothing of ours runs before Run. opts are added last, for what Config has no setting for.
func New(cfg Config, reg prometheus.Registerer, log *slog.Logger, opts ...kgo.Opt) (*Producer, error) {
	if errs := cfg.Validate(); len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	p := &Producer{
		cfg:     cfg,
		log:     log,
		reg:     reg,
		opts:    opts,
		wake:    make(chan struct{}, 1),
		drained: make(chan struct{}, 1),
	}
	ended, end := context.WithCancel(context.Background())
	end()
	p.ended = ended
	p.ages.slots[0].since.Store(time.Now().UnixNano())
	p.reach = newReach(&p.cfg, log)
	connect, err := cfg.Connect(log)
	if err != nil {
		return nil, err
	}
	p.connect = connect
	p.topics = newTopics(p)
	client, err := p.newClient()
	if err != nil {
		return nil, err
	}
	p.client.Store(client)
	p.metrics = newMetrics(reg, p)
	return p, nil
}

// Run looks up and creates the topics that Produce asks for, and says when Kafka cannot be reached or
// does not acknowledge. It returns nil when ctx ends, and an error only when no waiting can mend it
// (class Fatal). Records that are outstanding are not touched.
func (p *Producer) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return p.greet(ctx) })
	g.Go(func() error { return p.topics.run(ctx) })
	g.Go(func() error { return p.watch(ctx) })
	return g.Wait()
}

// Acquire returns an entry with an empty record, to route into.
func (p *Producer) Acquire() *Entry {
	if e := p.pool.get(); e != nil {
		return e
	}
	e := &Entry{p: p}
	e.promise = e.finish
	return e
}

// Release gives back an entry that Produce has not taken.
func (p *Producer) Release(e *Entry) { p.pool.put(e) }

// Produce hands the entry's record over. It never blocks.
//
// With nil the entry is the producer's, and to is told later. With an error it stays the caller's:
// ErrPending means to call again after Wake, a *RowError that the record can never be published as
// it is, a *TopicError that its topic could not be written to for long enough.
func (p *Producer) Produce(e *Entry, to Acker, token uint64) error {
	if err := p.admit(e, to, token); err != nil {
		return err
	}
	p.client.Load().Produce(context.Background(), &e.kafka, e.promise)
	return nil
}

// admit does all of Produce but the handing over: with nil the record counts as outstanding.
func (p *Producer) admit(e *Entry, to Acker, token uint64) error {
	if e.topic == nil || e.topic.name != e.Record.Topic {
		e.topic = p.topics.get(e.Record.Topic)
	}
	f := e.topic.facts.Load()
	if f == nil {
		p.topics.want(e.topic)
		return ErrPending
	}
	now, size := time.Now(), batchSize(&e.Record)
	if err := f.check(&e.Record, size, p.cfg.MaxMessageBytes); err != nil {
		// The topic may have been mended since we read its facts. No row is condemned on old news.
		if f.old(now) && e.topic.facts.CompareAndSwap(f, nil) {
			p.topics.want(e.topic)
			return ErrPending
		}
		p.metrics.refuse(err)
		return err
	}
	// Counted before draining is read: who drains sets it first and then waits for the count, so it
	// either sees this record or is seen by it.
	p.outstanding.Add(1)
	if p.draining.Load() {
		p.returned()
		return ErrPending
	}
	e.fill(size, now)
	e.to, e.token, e.slot = to, token, p.ages.add()
	p.metrics.produced.Add(1)
	p.metrics.producedBytes.Add(int64(size - batchOverhead))
	return nil
}

// failed notes a record that Kafka did not take. What we know about its topic may be the cause (the
// limits were lowered, the topic was deleted), so it is read anew before the next record of it.
func (p *Producer) failed(t *topic, err error) {
	class := Classify(err)
	p.metrics.failed[class].Add(1)
	switch class {
	case Topic:
		t.refused.Store(&refusal{err})
		t.facts.Store(nil)
	case Row:
		t.facts.Store(nil)
	case Session:
		if _, answered := errors.AsType[*kerr.Error](err); answered {
			p.doubted.Store(true)
			nudge(p.topics.ask)
		}
	}
}

// returned ends the count of one outstanding record.
func (p *Producer) returned() {
	if p.outstanding.Add(-1) == 0 && p.draining.Load() {
		nudge(p.drained)
	}
}

// Hurry sends what waits for others to share its batch. It is called from the goroutine of Produce.
func (p *Producer) Hurry() {
	if p.cfg.Linger > 0 {
		_ = p.client.Load().Flush(p.ended) // wakes what lingers; it does not wait, since the context has ended
	}
}

// Wake is nudged when a topic that was pending is not pending any more. One nudge may stand for
// several; there is one waiter.
func (p *Producer) Wake() <-chan struct{} { return p.wake }

// Outstanding is the number of records whose Acker has not been told yet.
func (p *Producer) Outstanding() int64 { return p.outstanding.Load() }

// Connected reports whether a connection to a broker is open, or the last one was closed for being idle.
func (p *Producer) Connected() bool { return p.reach.connected() }

// Reachable is nil while Connected, and says otherwise what stands in the way.
func (p *Producer) Reachable() error {
	if err := p.reach.why(); err != nil {
		return fmt.Errorf("kafka at %s cannot be reached: %w: %s", strings.Join(p.cfg.Brokers, ","), err, p.reach.remedy())
	}
	return nil
}

// Flush waits until every outstanding record has been reported to its Acker, or ctx ends.
func (p *Producer) Flush(ctx context.Context) error { return p.client.Load().Flush(ctx) }

// Close waits for outstanding records as long as ctx allows, and then closes the client, which
// reports the rest as failed (class Session). When it returns every Acker has been told. Run must
// have returned, and nobody may call Produce any more.
func (p *Producer) Close(ctx context.Context) {
	client := p.client.Load()
	if err := client.Flush(ctx); err != nil && p.Outstanding() > 0 {
		p.log.Warn("closing kafka without its acknowledgement", "outstanding", p.Outstanding(), "error", err)
	}
	client.Close()
	// kgo fails what is left on its promise goroutine; it waits for nothing else.
	_ = client.Flush(context.Background())
	p.metrics.unregister(p.reg)
}

// nudge wakes the reader of a channel of capacity 1. A nudge that is there already stands for this one.
func nudge(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
