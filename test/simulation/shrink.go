package simulation

import (
	"sync/atomic"
	"testing"
	"time"
)

// tries is how often a smaller plan is played before it counts as sound: the order of goroutines is
// not the seed's, so one good run proves little.
const tries = 3

// Shrink looks for a smaller plan that breaks one of the same promises, for about as long as it is
// told, and returns the smallest with what it broke.
func Shrink(t *testing.T, r Result, patience time.Duration) Result {
	s := shrinker{t: t, best: r, until: time.Now().Add(patience)}
	for size := len(r.Plan.Steps) / 2; size > 0; size /= 2 {
		for from := 0; from+size <= len(s.best.Plan.Steps) && s.more(); {
			if !s.try(s.best.Plan.without(from, from+size)) {
				from += size
			}
		}
	}
	for i := 0; i < len(s.best.Plan.Steps) && s.more(); i++ {
		for _, smaller := range smaller(s.best.Plan.Steps[i].Do) {
			if s.try(s.best.Plan.with(i, smaller)) {
				i--
				break
			}
		}
	}
	for _, simpler := range simpler(s.best.Plan.Setup) {
		p := s.best.Plan
		p.Setup = simpler
		s.try(p)
	}
	return s.best
}

type shrinker struct {
	t     *testing.T
	best  Result
	until time.Time
}

func (s *shrinker) more() bool { return time.Now().Before(s.until) }

// try keeps the plan if it breaks a promise that the first one broke.
func (s *shrinker) try(p Plan) bool {
	for range tries {
		if !s.more() {
			return false
		}
		r := play(s.t, p, new(atomic.Int64))
		for _, v := range r.Broken {
			for _, first := range s.best.Broken {
				if v.Promise == first.Promise {
					s.best = r
					return true
				}
			}
		}
	}
	return false
}

// smaller are lesser forms of an action.
func smaller(a Action) []Action {
	w, ok := a.(Write)
	if !ok || w.Rows <= 1 {
		return nil
	}
	few, plain := w, w
	few.Rows /= 2
	plain.How, plain.Size, plain.Others, plain.Ready, plain.Delete = Plain, 10, 0, 0, false
	if plain == w {
		return []Action{few}
	}
	return []Action{few, plain}
}

func simpler(s Setup) []Setup {
	one, near := s, s
	one.Brokers, one.Partitions, one.Relays = 1, 1, 1
	near.Delay, near.Linger, near.Buffer = 0, 0, 256<<10
	return []Setup{one, near}
}
