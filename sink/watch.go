package sink

import (
	"context"
	"sync/atomic"
	"time"
)

// ages knows, to the second, how old the oldest outstanding record is, for two atomics per record:
// each record is counted in the slot of the second it was handed over in.
//
// The current slot moves on only onto an empty one. So while a record is outstanding for longer than
// all slots last, the records after it share a slot with others; they are then called older than
// they are, by which time the alarm has long been raised.
type ages struct {
	current atomic.Uint32
	slots   [ageSlots]ageSlot
}

type ageSlot struct {
	records atomic.Int64
	since   atomic.Int64 // when the slot became the current one, in Unix nanoseconds
}

const (
	ageSlots    = 32
	ageInterval = time.Second

	// A broker that lost a replica answers within replica.lag.time.max.ms or the 10 s of our request.
	silence = 10 * time.Second
)

// add counts a record and returns its slot.
func (a *ages) add() uint8 {
	slot := a.current.Load()
	a.slots[slot].records.Add(1)
	return uint8(slot)
}

func (a *ages) remove(slot uint8) { a.slots[slot].records.Add(-1) }

// tick moves on to the next slot. One goroutine calls it, every ageInterval.
func (a *ages) tick(now time.Time) {
	next := (a.current.Load() + 1) % ageSlots
	if a.slots[next].records.Load() != 0 {
		return
	}
	a.slots[next].since.Store(now.UnixNano())
	a.current.Store(next)
}

// oldest is the age of the oldest outstanding record, 0 when there is none.
func (a *ages) oldest() time.Duration {
	current := a.current.Load()
	for i := range uint32(ageSlots) {
		slot := &a.slots[(current+1+i)%ageSlots]
		since := slot.since.Load()
		if slot.records.Load() > 0 && since != 0 {
			return time.Since(time.Unix(0, since))
		}
	}
	return 0
}

// watch says when Kafka stops acknowledging and when it goes on, one line for each.
func (p *Producer) watch(ctx context.Context) error {
	tick := time.NewTicker(ageInterval)
	defer tick.Stop()
	var silentSince time.Time
	p.ages.tick(time.Now())
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-p.reach.fatal:
			return err
		case now := <-tick.C:
			p.ages.tick(now)
			oldest := p.ages.oldest()
			switch silent := oldest >= silence; {
			case silent && silentSince.IsZero():
				silentSince = now.Add(-oldest)
				p.log.Warn("kafka does not acknowledge", "outstanding", p.Outstanding(),
					"oldest", oldest.Round(time.Second), "connected", p.Connected())
			case !silent && !silentSince.IsZero():
				p.log.Info("kafka acknowledges again", "after", now.Sub(silentSince).Round(time.Second))
				silentSince = time.Time{}
			}
		}
	}
}

// greet asks a broker for nothing in particular until one has answered, so that "kafka reachable",
// or why it is not, is said before the first event comes.
func (p *Producer) greet(ctx context.Context) error {
	for failures := 1; ; failures++ {
		attempt, cancel := context.WithTimeout(ctx, requestTimeout)
		err := p.client.Load().Ping(attempt)
		cancel()
		if ctx.Err() != nil {
			return nil
		}
		if p.reach.answered(err); err == nil {
			return nil
		}
		if !sleep(ctx, backoff(failures)) {
			return nil
		}
	}
}

// sleep waits for d and reports whether ctx is still alive.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
