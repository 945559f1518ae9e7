package simulation

import (
	"testing"
	"time"
)

// A plan that breaks a promise for one write of three rows beside one crash is shrunk to these two.
func TestShrink(t *testing.T) {
	var p Plan
	for i := range 50 {
		p.Steps = append(p.Steps, Step{time.Duration(i), Write{Seed: uint64(i), Rows: 100, Keys: 1, Size: 1000}}, Step{time.Duration(i), MoveLeaders{}})
	}
	p.Steps[70].Do, p.Setup.Brokers = Crash{}, 3
	broken := []Violation{{Promise: Delivered}}
	play := func(p Plan) (Result, bool) {
		var crash, write bool
		for _, s := range p.Steps {
			switch a := s.Do.(type) {
			case Crash:
				crash = true
			case Write:
				write = write || a.Seed == 20 && a.Rows >= 3
			}
		}
		if crash && write {
			return Result{Plan: p, Broken: broken}, true
		}
		return Result{Plan: p}, true
	}
	r := Shrink(Result{Plan: p, Broken: broken}, time.Minute, play)
	if len(r.Plan.Steps) != 2 || r.Plan.Setup.Brokers != 1 {
		t.Fatalf("left over:\n%s", r.Plan)
	}
	if w, ok := r.Plan.Steps[0].Do.(Write); !ok || w.Rows != 3 || w.Size != 10 {
		t.Errorf("the write is %v", r.Plan.Steps[0].Do)
	}
}

func TestSeedGivesOnePlan(t *testing.T) {
	for seed := range uint64(100) {
		if a, b := Generate(seed).String(), Generate(seed).String(); a != b {
			t.Fatalf("two plans of seed %d:\n%s\n%s", seed, a, b)
		}
	}
}
