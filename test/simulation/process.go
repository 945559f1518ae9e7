package simulation

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caarlos0/env/v11"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"

	"walrelay/internal/postgres"
	"walrelay/internal/source"
	"walrelay/relay"
	"walrelay/sink"
)

// process is one life of a relay. To servers it is a host of its own.
type process struct {
	n       int // counts the processes of a history
	host    string
	relay   *relay.Relay
	stop    context.CancelFunc // SIGTERM
	killed  atomic.Bool
	stopped atomic.Bool // a SIGTERM was sent
	down    atomic.Int64
	w       *world
}

// kill cuts all connections at once, both ways, and lets no new one through. What is left of the relay
// runs out unseen.
func (p *process) kill() {
	p.killed.Store(true)
	p.w.ban(p.host)
	p.stop()
	p.relay.Abort()
}

// replica is a place where relays run one after the other, and the operator who starts them.
type replica struct {
	n   int
	w   *world
	mu  sync.Mutex
	now *process // nil while none runs
}

// run starts relays until ctx ends, as a supervisor does, and does for each that exits what its error
// asks of a person.
func (r *replica) run(ctx context.Context) {
	for ctx.Err() == nil {
		p, runCtx, err := r.w.launch()
		if err != nil {
			r.w.say(NothingRuns, "a relay could not be made: %v", err)
			return
		}
		stop := context.AfterFunc(ctx, p.stop)
		r.set(p)
		err = p.relay.Run(runCtx)
		r.set(nil)
		r.w.log.add(fmt.Appendf(nil, "[%d] t=%.3fs ended: %v\n", p.n, time.Since(bubbleStart).Seconds(), err))
		stop()
		p.stop()
		r.w.noteMemory(p)
		if ctx.Err() != nil {
			if err != nil && !p.stopped.Load() && !p.killed.Load() {
				r.w.operate(ctx, p, err) // it had ended by itself
			}
			return
		}
		down := time.Duration(p.down.Load())
		if !p.killed.Load() {
			down = max(down, r.w.operate(ctx, p, err))
		}
		sleep(ctx, max(down, time.Second))
	}
}

func (r *replica) set(p *process) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now = p
}

func (r *replica) process() *process {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.now
}

// launch makes a relay on a host of its own.
func (w *world) launch() (*process, context.Context, error) {
	w.mu.Lock()
	w.processes++
	p := &process{n: w.processes, w: w, host: fmt.Sprintf("10.1.%d.%d", w.processes/250, 1+w.processes%250)}
	w.mu.Unlock()

	setup := w.plan.Setup
	o := relay.Options{
		Database: "postgres://relay@" + postgresAddress + "/app?sslmode=disable",
		Registry: prometheus.NewRegistry(),
		Log:      slog.New(slog.NewTextHandler(&prefixed{w.log, fmt.Sprintf("[%d] ", p.n)}, &slog.HandlerOptions{ReplaceAttr: shortTime})),
		Dial:     postgres.DialFunc(w.postgresNet.From(p.host)),
		KafkaOpts: []kgo.Opt{
			kgo.Dialer(w.kafkaNet.From(p.host)),
			kgo.WithHooks(hook{w.ledger, p}),
		},
	}
	settings := map[string]string{
		"KAFKA_BROKERS":               brokerAddress(0),
		"KAFKA_COMPRESSION":           "none", // the broker that refuses an event looks for its id
		"KAFKA_MAX_MESSAGE_BYTES":     fmt.Sprint(setup.MaxMessage),
		"KAFKA_TOPIC_PARTITIONS":      fmt.Sprint(setup.Partitions),
		"REPLICATION_SLOT":            slotName,
		"REPLICATION_STATUS_INTERVAL": setup.Status.String(),
		"RELAY_AFTER_PUBLISH":         string(setup.After),
	}
	if err := parse(settings, &o.Outbox, &o.Replication, &o.Router, &o.Kafka, &o.Relay); err != nil {
		return nil, nil, err
	}
	var err error
	if p.relay, err = relay.New(o); err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	p.stop = cancel
	return p, ctx, nil
}

// parse reads settings as the command does, from these variables alone.
func parse(settings map[string]string, into ...any) error {
	var errs []error
	for _, v := range into {
		errs = append(errs, env.ParseWithOptions(v, env.Options{Environment: settings}))
	}
	return errors.Join(errs...)
}

// operate is what the operator does about a relay that has exited, and how long that takes.
func (w *world) operate(ctx context.Context, p *process, err error) time.Duration {
	var (
		poison *source.PoisonError
		mode   *postgres.ModeError
		topic  *sink.TopicError
	)
	switch {
	case err == nil:
		if !p.stopped.Load() {
			w.say(Progress, "relay %d ended without an error and nobody had asked it to", p.n)
		}
	case errors.As(err, &poison):
		w.mu.Lock()
		planned := w.poison[poison.EventID]
		w.exits["poison"]++
		w.mu.Unlock()
		switch {
		case planned:
			w.giveUp(ctx, poison)
		case errors.As(err, &topic), w.ledger.rejected(poison.EventID):
			// The brokers have rejected a sound event, alone, as they were told to. It is sound again
			// when they are.
		default:
			w.say(NothingDropped, "relay %d halted at event %s, which is sound: %v", p.n, poison.EventID, err)
		}
		return 2 * time.Second
	case p.stopped.Load(): // its stop took too long, which the next start mends
	case errors.As(err, &mode) && w.excused(exitMode), w.excused(exitFatal):
		w.mu.Lock()
		w.exits["person"]++
		w.mu.Unlock()
		return 5 * time.Second
	default:
		w.say(Progress, "relay %d gave up: %v", p.n, err)
	}
	return 0
}

// giveUp marks the row of a poison event, as the operator's guide says, as soon as the table lets it.
func (w *world) giveUp(ctx context.Context, poison *source.PoisonError) {
	w.ledger.giveUp(poison.EventID)
	for range 600 {
		if st, ok := w.pg.Row(poison.RowID); ok && st.Row.EventID != poison.EventID {
			return // another event has its id: the row is gone
		}
		if w.pg.MarkRow(poison.RowID, time.Now()) {
			return
		}
		if !sleep(ctx, 100*time.Millisecond) {
			return
		}
	}
}

// sleep waits for d and says whether ctx is still alive.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// journal is the log of all relays of a history: its beginning and its end.
type journal struct {
	mu          sync.Mutex
	first, last [][]byte
	left        int // lines in between
}

const (
	firstLines = 150
	lastLines  = 40
)

func (j *journal) add(line []byte) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.first) < firstLines {
		j.first = append(j.first, line)
		return
	}
	if len(j.last) == lastLines {
		j.last = append(j.last[:0], j.last[1:]...)
		j.left++
	}
	j.last = append(j.last, line)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	s := string(bytes.Join(j.first, nil))
	if j.left > 0 {
		s += fmt.Sprintf("... %d lines ...\n", j.left)
	}
	return s + string(bytes.Join(j.last, nil))
}

// prefixed writes lines to a journal, each with the same words before it.
type prefixed struct {
	to     *journal
	prefix string
}

func (p *prefixed) Write(line []byte) (int, error) {
	p.to.add(append([]byte(p.prefix), line...))
	return len(line), nil
}

var _ io.Writer = (*prefixed)(nil)

// shortTime prints the time as seconds of the history: a bubble begins in the year 2000.
func shortTime(groups []string, a slog.Attr) slog.Attr {
	if len(groups) == 0 && a.Key == slog.TimeKey {
		return slog.String("t", fmt.Sprintf("%.3fs", a.Value.Time().Sub(bubbleStart).Seconds()))
	}
	return a
}

var bubbleStart = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
