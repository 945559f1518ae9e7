// Package relay joins the source, the router, the sink and the checkpoint, and keeps a session of the
// source running.
//
// An event travels: session → decoder → router → sink → Kafka, and its acknowledgement: sink →
// tracker → settle → status. The session's goroutine does the first half, Kafka's promise goroutine
// sets one atomic, and the session's settle goroutine does the second half up to the watermark that
// the session's goroutine reports.
package relay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"walrelay/internal/postgres"
	"walrelay/internal/source"
	"walrelay/outbox"
	"walrelay/polling"
	"walrelay/replication"
	"walrelay/router"
	"walrelay/sink"
)

// Options are what a relay is made of.
type Options struct {
	Database    string // DATABASE_URL
	Outbox      outbox.Config
	Replication replication.Config
	Polling     polling.Config
	Router      router.Config
	Kafka       sink.Config
	Relay       Config
	Registry    prometheus.Registerer
	Log         *slog.Logger
	Dial        postgres.DialFunc // to PostgreSQL; nil: the network
	KafkaOpts   []kgo.Opt
	Trace       Trace // nil: none
}

// feed is where events come from: the WAL, or the table itself.
//
// Session runs until soft ends, then in order, or until something breaks; hard ends it at once. Nothing
// of it is left when it returns but events that are still with Kafka. What is declared behind it is
// called between two sessions, but for Ready and Database.
type feed interface {
	Session(soft, hard context.Context) error
	Isolate(*source.PublishError)                              // hand over one event at a time, up to that one
	GiveUp(context.Context, *source.PoisonError) (bool, error) // has an operator marked the event's row?
	Progress() string                                          // what is settled: other words, other place
	Ready() error
	Database() string
}

// Relay publishes one outbox table. New opens and starts nothing; Run does both and leaves nothing
// behind.
type Relay struct {
	cfg     Config
	log     *slog.Logger
	source  feed
	wal     *replication.Source // nil: it polls
	poll    *polling.Source     // nil: it streams
	old     *retention          // nil: published rows stay
	sink    *sink.Producer
	metrics *metrics
	abort   context.CancelFunc
	aborted context.Context
	failed  atomic.Pointer[ending] // why the last session ended, while none has made progress since
}

// ending is the end of a session, for people.
type ending struct {
	reason string
	err    error
	at     time.Time
}

// New checks the options.
func New(o Options) (*Relay, error) {
	if errs := o.Relay.Validate(); len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	r := &Relay{cfg: o.Relay, log: o.Log, metrics: newMetrics(o.Registry)}
	r.aborted, r.abort = context.WithCancel(context.Background())
	pub := &publisher{trace: o.Trace}
	var err error
	if err = r.open(o, pub); err != nil {
		return nil, err
	}
	if pub.router, err = router.New(o.Router, r.source.Database()); err != nil {
		return nil, err
	}
	if pub.sink, err = sink.New(o.Kafka, o.Registry, o.Log, o.KafkaOpts...); err != nil {
		return nil, err
	}
	r.sink = pub.sink
	if o.Relay.Retention > 0 {
		r.old, err = newRetention(o, r.leads)
	}
	return r, err
}

// open makes the source that RELAY_MODE names. It opens no connection.
func (r *Relay) open(o Options, pub *publisher) (err error) {
	limit := rowLimit * int(o.Kafka.MaxMessageBytes)
	if o.Relay.Mode == Polling {
		r.poll, err = polling.New(polling.Options{
			Database: o.Database, Config: o.Polling, Outbox: o.Outbox, AfterPublish: o.Relay.AfterPublish,
			Publisher: pub, RowLimit: limit, Dial: o.Dial, Log: o.Log, Registry: o.Registry,
		})
		r.source = r.poll
		return err
	}
	r.wal, err = replication.New(replication.Options{
		Database: o.Database, Config: o.Replication, Outbox: o.Outbox, AfterPublish: o.Relay.AfterPublish,
		Publisher: pub, RowLimit: limit, Dial: o.Dial, Log: o.Log, Registry: o.Registry,
	})
	r.source = r.wal
	return err
}

// rowLimit times KAFKA_MAX_MESSAGE_BYTES is the size above which a row is thrown away while it is
// read. Below it, Kafka's own limit decides, after routing, so that the reason can name it.
const rowLimit = 4

// Run relays until ctx ends, then stops in order: what is in flight is acknowledged, settled and
// confirmed, as far as RELAY_SHUTDOWN_TIMEOUT allows. It returns nil after an orderly stop, and
// otherwise what a person must mend. A relay runs once.
func (r *Relay) Run(ctx context.Context) error {
	soft, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	hard, cancel := context.WithCancel(r.aborted)
	defer cancel()
	defer context.AfterFunc(soft, func() {
		timer := time.AfterFunc(r.cfg.ShutdownTimeout, cancel)
		context.AfterFunc(hard, func() { timer.Stop() })
	})()

	// The sink outlives the sessions and ends after them.
	sinking, endSink := context.WithCancel(context.WithoutCancel(ctx))
	defer endSink()
	var group errgroup.Group
	group.Go(func() error {
		err := r.sink.Run(sinking)
		if err != nil {
			fail(err)
		}
		return err
	})
	tidying, endRetention := context.WithCancel(soft)
	defer endRetention()
	if r.old != nil {
		group.Go(func() error { r.old.run(tidying); return nil })
	}
	err := r.supervise(soft, hard)
	endRetention()
	endSink()
	if serr := group.Wait(); serr != nil {
		err = serr // it is why the sessions were ended
	} else if hard.Err() != nil {
		err = errors.New("stopped before everything in flight was confirmed: it is sent again after the next start")
	}
	closing, giveUp := context.WithCancel(hard)
	defer giveUp()
	if err != nil {
		giveUp() // what is left is sent again after the next start: do not wait for it
	}
	r.sink.Close(closing)
	return err
}

// leads says whether this relay is the one that reads the table now.
func (r *Relay) leads() bool {
	if r.poll != nil {
		return r.poll.State().Phase == polling.PhasePolling
	}
	return r.wal.State().Phase == replication.PhaseStreaming
}

// Abort ends an orderly stop at once.
func (r *Relay) Abort() { r.abort() }

// supervise keeps one session running until soft ends or a person is needed.
func (r *Relay) supervise(soft, hard context.Context) error {
	b := newBackoff()
	for {
		began := time.Now()
		before := r.source.Progress()
		err := r.source.Session(soft, hard)
		if ferr := r.awaitPromises(hard); ferr != nil {
			return errors.Join(err, ferr)
		}
		if err == nil || soft.Err() != nil {
			return err
		}
		v, err := r.judge(hard, err)
		if v == exit {
			return err
		}
		if r.source.Progress() != before || time.Since(began) > calm {
			b.reset()
			r.failed.Store(nil)
		}
		if stuck := b.stuck(err, r.source.Progress(), time.Now()); stuck != nil {
			return stuck
		}
		r.report(err)
		if v == again {
			continue
		}
		if !b.wait(soft) {
			return nil
		}
	}
}

// awaitPromises waits until every event that the last session handed over has come back: a late
// acknowledgement belongs to the old tracker, and a new session that did not wait for it would send
// the event again, and have two windows in memory.
func (r *Relay) awaitPromises(hard context.Context) error {
	if r.sink.Outstanding() == 0 {
		return nil
	}
	r.log.Info("waiting for kafka before the stream starts again", "outstanding", r.sink.Outstanding())
	for r.sink.Outstanding() > 0 {
		if err := r.sink.Flush(hard); err != nil {
			return fmt.Errorf("%d events were handed to kafka and not acknowledged: they are sent again after the next start", r.sink.Outstanding())
		}
		time.Sleep(drainPoll) // the last promise is returning
	}
	return nil
}

// report says once why sessions end, not each time.
func (r *Relay) report(err error) {
	e := &ending{reason: reason(err), err: err, at: time.Now()}
	r.metrics.sessions.WithLabelValues(e.reason).Inc()
	if _, given := errors.AsType[*source.PoisonError](err); given {
		return // it was said that the event is given up
	}
	if last := r.failed.Swap(e); last != nil && last.err.Error() == err.Error() {
		r.log.Debug("session ended again", "reason", e.reason, "error", err)
		return
	}
	r.log.Warn("session ended, starting another", "reason", e.reason, "error", err)
}

// Ready is nil while events flow or would flow: the stream is alive and Kafka can be reached.
func (r *Relay) Ready() error {
	if err := r.source.Ready(); err != nil {
		if last := r.failed.Load(); last != nil {
			return fmt.Errorf("%w; last session: %v", err, last.err)
		}
		return err
	}
	return r.sink.Reachable()
}
