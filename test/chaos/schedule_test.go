package chaos

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"
)

// fault is one kind of trouble. run makes it and returns when it is over: servers are back, lines are
// whole, and what only an operator can mend is mended.
type fault struct {
	kind  string
	needs needs
	slot  bool // it is about the slot or its stream
	run   func(w *world, r *rand.Rand)
}

// needs is what a fault needs of a run.
type needs uint8

const (
	always needs = iota // no run is without it
	short               // seconds
	long                // more than that, so that only long runs have it
)

// polling is the mode that has no slot.
const polling = "polling"

func kinds(mode string) []fault {
	all := relayFaults()
	all = append(all, postgresFaults()...)
	all = append(all, kafkaFaults()...)
	all = append(all, operatorFaults()...)
	return slices.DeleteFunc(all, func(f fault) bool { return f.slot && mode == polling })
}

// schedule gives out every kind once, in random order, then every kind again. In a short run those that
// no run is without come first.
type schedule struct {
	seed    uint64
	step    uint64
	long    bool
	kinds   []fault
	waiting []fault
}

// next is the next fault and the chance by which it decides on its details. Both follow from the seed
// and the number of the step alone.
func (s *schedule) next() (fault, *rand.Rand) {
	r := rand.New(rand.NewPCG(s.seed, s.step))
	if len(s.waiting) == 0 {
		var first, then []fault
		for _, f := range s.kinds {
			switch {
			case f.needs == always && !s.long:
				first = append(first, f)
			case f.needs != long || s.long:
				then = append(then, f)
			}
		}
		for _, part := range [][]fault{first, then} {
			r.Shuffle(len(part), func(i, j int) { part[i], part[j] = part[j], part[i] })
			s.waiting = append(s.waiting, part...)
		}
	}
	f := s.waiting[0]
	s.waiting = s.waiting[1:]
	s.step++
	return f, r
}

// between is a time from one to the other; in a short run it is from a fifth of both.
func (w *world) between(r *rand.Rand, from, to time.Duration) time.Duration {
	d := from + time.Duration(r.Int64N(int64(to-from)+1))
	if !w.long {
		d /= 5
	}
	return d
}

// hold lets a fault last. Now and then another one strikes meanwhile, of those that last no time.
func (w *world) hold(r *rand.Rand, d time.Duration) {
	second := time.Duration(0)
	if r.IntN(3) > 0 {
		second = time.Duration(r.Int64N(int64(d)))
		w.wait(second)
		switch r.IntN(3) {
		case 0:
			w.inject("kill -9", "meanwhile")
			w.kill()
		case 1:
			w.inject("SIGTERM", "meanwhile")
			w.terminate(false)
		case 2:
			switch {
			case !w.f.DB.Server.Control().Running():
			case w.mode == polling:
				w.inject("SQL backend terminated", "meanwhile")
				w.cutOff(sqlClient)
			default:
				w.inject("walsender terminated", "meanwhile")
				w.cutOff(walsender)
			}
		}
	}
	w.wait(d - second)
}

// wait is for a fault to last: there is nothing else to wait for.
func (w *world) wait(d time.Duration) {
	ctx, cancel := context.WithTimeout(w.t.Context(), d)
	defer cancel()
	<-ctx.Done()
}
