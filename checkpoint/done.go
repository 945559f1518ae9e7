package checkpoint

import (
	"errors"
	"fmt"
	"sync/atomic"
)

// ErrToken is a token that is not where its caller believes: acknowledged twice, settled before it was
// acknowledged, or never given out. It is a bug of the caller; nothing has changed.
var ErrToken = errors.New("token is stale or unknown")

// Done says that Kafka has the row. It runs on the producer's promise goroutine: a compare-and-swap, an add and
// one load per waiter, never a lock. The bytes of the row are given back here.
//
// A late ack of a session that is gone cannot do harm: it holds the tracker of that session. A late ack within
// the session cannot hit the row that uses the slot now, because the slot's state carries the token.
func (t *Tracker) Done(token uint64) error {
	s := t.slot(token)
	inFlight := pack(token, stateInFlight)
	if s.state.Load() != inFlight {
		return fmt.Errorf("acknowledge row %d: %w", token, ErrToken)
	}
	size := uint64(s.size.Load()) // before the swap: behind it the slot may be reused
	if !s.state.CompareAndSwap(inFlight, pack(token, stateResolved)) {
		return fmt.Errorf("acknowledge row %d: %w", token, ErrToken)
	}
	t.inFlight.Add(-(oneRow | size))
	t.nudge()
	return nil
}

// Waiter wakes one goroutine when a row is acknowledged, settled or released. Arm first, then look at the
// tracker, then receive from C: what happens after Arm is never missed. A wake-up without news is possible.
type Waiter struct {
	C     <-chan struct{}
	c     chan struct{}
	armed atomic.Bool
}

// NewWaiter makes a waiter, for instance one for the source (room) and one for the settler (work). It lives as
// long as the tracker.
func (t *Tracker) NewWaiter() *Waiter {
	c := make(chan struct{}, 1)
	w := &Waiter{C: c, c: c}
	t.mu.Lock()
	defer t.mu.Unlock()
	waiters := append(append([]*Waiter(nil), *t.waiters.Load()...), w)
	t.waiters.Store(&waiters)
	return w
}

// Arm asks for one wake-up.
func (w *Waiter) Arm() { w.armed.Store(true) }

// nudge never blocks: where the channel is full a wake-up is under way.
func (t *Tracker) nudge() {
	for _, w := range *t.waiters.Load() {
		if w.armed.Load() && w.armed.CompareAndSwap(true, false) {
			select {
			case w.c <- struct{}{}:
			default:
			}
		}
	}
}
