package demo

import (
	"context"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"walrelay/outbox"
)

// arrival is one record as the consumer saw it.
type arrival struct {
	id                    outbox.EventID
	topic, key, eventType string
	at                    time.Time
}

// ledger compares what the service committed with what the consumer saw. The two come in either
// order: a record can be on Kafka before COMMIT has returned to the service.
type ledger struct {
	show func(a arrival, latency time.Duration, warmUp bool) // called for each event that is whole, under the lock

	mu struct {
		sync.Mutex
		open      map[outbox.EventID]open // one half is known
		done      map[outbox.EventID]bool // both are
		declined  map[outbox.EventID]bool
		latency   *hdrhistogram.Histogram // microseconds
		totals    totals
		waiting   int // committed and not seen
		timing    bool
		announced chan struct{}
	}
}

type open struct {
	committed time.Time
	seen      *arrival
}

type totals struct {
	events, timed            int // timed: those after the warm-up
	transactions, declined   int
	lost, repeated, phantoms int
	p50, p99                 time.Duration
}

func newLedger(show func(arrival, time.Duration, bool)) *ledger {
	l := &ledger{show: show}
	l.mu.open = map[outbox.EventID]open{}
	l.mu.done = map[outbox.EventID]bool{}
	l.mu.declined = map[outbox.EventID]bool{}
	l.mu.latency = hdrhistogram.New(1, time.Minute.Microseconds(), 3)
	l.mu.announced = make(chan struct{}, 1)
	return l
}

// committed notes events whose COMMIT returned at that moment.
func (l *ledger) committed(ids []outbox.EventID, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.totals.transactions++
	for _, id := range ids {
		l.mu.waiting++
		if half, seen := l.mu.open[id]; seen {
			l.completeLocked(*half.seen, at)
			continue
		}
		l.mu.open[id] = open{committed: at}
	}
}

// rolledBack notes events that must never be seen.
func (l *ledger) rolledBack(ids []outbox.EventID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.totals.declined++
	for _, id := range ids {
		l.mu.declined[id] = true
	}
}

// saw notes a record.
func (l *ledger) saw(a arrival) {
	l.mu.Lock()
	defer l.mu.Unlock()
	half, known := l.mu.open[a.id]
	switch {
	case l.mu.done[a.id] || known && half.seen != nil:
		l.mu.totals.repeated++
	case known:
		l.completeLocked(a, half.committed)
	default:
		l.mu.open[a.id] = open{seen: &a}
	}
}

func (l *ledger) completeLocked(a arrival, committed time.Time) {
	delete(l.mu.open, a.id)
	l.mu.done[a.id] = true
	l.mu.waiting--
	latency := max(a.at.Sub(committed), 0)
	l.mu.totals.events++
	if l.mu.timing {
		l.mu.totals.timed++
		// A value beyond the histogram's range counts as its end.
		_ = l.mu.latency.RecordValue(min(latency.Microseconds(), l.mu.latency.HighestTrackableValue()))
	}
	l.show(a, latency, !l.mu.timing)
	if l.mu.waiting == 0 {
		select {
		case l.mu.announced <- struct{}{}:
		default:
		}
	}
}

// startTiming ends the warm-up: latencies count from here on.
func (l *ledger) startTiming() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.timing = true
}

// await returns when every committed event was seen, at the latest after d.
func (l *ledger) await(ctx context.Context, d time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	for {
		l.mu.Lock()
		waiting := l.mu.waiting
		l.mu.Unlock()
		if waiting == 0 {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-l.mu.announced:
		}
	}
}

// totals is the balance: what is committed and not seen by now is lost.
func (l *ledger) totals() totals {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.mu.totals
	t.lost = l.mu.waiting
	for id := range l.mu.open {
		if l.mu.declined[id] {
			t.phantoms++
		}
	}
	t.p50 = time.Duration(l.mu.latency.ValueAtQuantile(50)) * time.Microsecond
	t.p99 = time.Duration(l.mu.latency.ValueAtQuantile(99)) * time.Microsecond
	return t
}
