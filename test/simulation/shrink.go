package simulation

import "time"

// tries is how often a smaller plan is played before it counts as sound: the order of goroutines is
// not the seed's, so one good run proves little.
const tries = 3

// Shrink looks for a smaller plan that breaks one of the same promises, for about as long as it is
// told, and returns the smallest with what it broke. play is not ok where it could not play to the end.
func Shrink(r Result, patience time.Duration, play func(Plan) (r Result, ok bool)) Result {
	s := shrinker{play: play, best: r, until: time.Now().Add(patience)}
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
	for _, simplify := range []func(*Setup){
		func(s *Setup) { s.Brokers, s.Partitions, s.Relays = 1, 1, 1 },
		func(s *Setup) { s.Delay, s.Linger, s.Buffer = 0, 0, 256<<10 },
	} {
		p := s.best.Plan
		simplify(&p.Setup)
		s.try(p)
	}
	return s.best
}

type shrinker struct {
	play  func(Plan) (Result, bool)
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
		r, ok := s.play(p)
		if !ok {
			return false
		}
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
