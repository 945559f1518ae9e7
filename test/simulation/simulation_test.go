package simulation

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

var (
	runs = flag.Int("sim.runs", 0, "histories to play; 0: 500, or 100 with -short, or 40 with -race, or 1 with -sim.seed")
	seed = flag.Uint64("sim.seed", 0, "seed of the first history; 0: 1")
	less = flag.Duration("sim.shrink", time.Minute, "how long a failing plan is shrunk")
	told = flag.Bool("sim.plan", false, "print the plan of each history")
)

func TestMain(m *testing.M) {
	flag.Parse()
	code := m.Run()
	if code == 0 && stopped.histories.Load() == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// Every history keeps every promise. Seeds follow each other from -sim.seed on.
func TestHistories(t *testing.T) {
	n, first := uint64(*runs), *seed
	switch {
	case n > 0:
	case first > 0:
		n = 1
	case raced:
		n = 40
	case testing.Short():
		n = 100
	default:
		n = 500
	}
	if first == 0 {
		first = 1
	}
	var next atomic.Uint64
	var total struct {
		sync.Mutex
		Counts
	}
	total.Kinds = make(map[string]int)
	var broken atomic.Int32
	began := time.Now()
	t.Cleanup(func() { t.Logf("%v in %v", total.Counts, time.Since(began).Round(time.Millisecond)) })
	for i := range runtime.GOMAXPROCS(0) {
		t.Run(fmt.Sprint("worker", i), func(t *testing.T) {
			t.Parallel()
			for i := next.Add(1) - 1; i < n && (broken.Load() == 0 || !failFast()); i = next.Add(1) - 1 {
				p := Generate(first + i)
				if *told {
					t.Log(p)
				}
				r, ok := history(t, p)
				if !ok {
					t.Logf("seed %d was left standing", r.Plan.Seed)
				}
				total.Lock()
				total.add(r.Counts)
				total.Unlock()
				if len(r.Broken) > 0 {
					story(t, r, broken.Add(1) <= stories)
				}
			}
		})
	}
}

// failFast is go test's own flag: the first broken history is enough.
func failFast() bool {
	f := flag.Lookup("test.failfast")
	return f != nil && f.Value.String() == "true"
}

// A history whose own clock has not ticked for standstill, by the clock on the wall, is looked at; one
// that has not for patience of these looks spins or is stuck.
const (
	standstill = 15 * time.Second
	patience   = 8
)

// history plays a plan. ok is false where virtual time has stopped because a goroutine of kgo waits for
// a mutex that another one holds while it sleeps: nothing is wrong then but the means.
func history(t *testing.T, p Plan) (r Result, ok bool) {
	t.Helper()
	var ticks atomic.Int64
	done := make(chan Result, 1)
	go func() {
		r := Result{Plan: p}
		defer func() { done <- r }() // also where the race detector ends the bubble's test
		r = play(t, p, &ticks)
	}()
	for before, looks := int64(-1), 0; ; looks++ {
		select {
		case r := <-done:
			return r, true
		case <-time.After(standstill):
		}
		if now := ticks.Load(); now != before {
			before, looks = now, 0
			continue
		}
		buf := make([]byte, 16<<20)
		stacks := buf[:runtime.Stack(buf, true)]
		if waits := producerIDWaits(stacks); waits > stopped.waits.Load() {
			stopped.waits.Store(waits)
			stopped.histories.Add(1)
			return Result{Plan: p}, false
		}
		if looks >= patience {
			fmt.Fprintf(os.Stderr, "seed %d stands still:\n%s\n%s\n", p.Seed, p, stacks)
			os.Exit(2)
		}
	}
}

// producerIDWaits counts the goroutines that wait for the mutex of a client's producer id.
func producerIDWaits(stacks []byte) (n int64) {
	for s := range bytes.SplitSeq(stacks, []byte("\n\n")) {
		if bytes.Contains(s, []byte("[sync.Mutex.Lock")) && bytes.Contains(s, []byte("kgo.(*Client).producerID(")) {
			n++
		}
	}
	return n
}

// stopped counts the histories that were left standing, and their goroutines, which stay.
var stopped struct{ histories, waits atomic.Int64 }

// stories is how many histories are told in full. Most failures of a run have one cause.
const stories = 2

// story fails the test with a history that broke a promise, in full after shrinking it.
func story(t *testing.T, r Result, full bool) {
	t.Helper()
	first := r
	if !full {
		t.Errorf("seed %d: %v", r.Plan.Seed, r.Broken[0])
		return
	}
	r = Shrink(r, *less, func(p Plan) (Result, bool) { return history(t, p) })
	var b strings.Builder
	for _, v := range r.Broken {
		fmt.Fprintln(&b, v)
	}
	fmt.Fprintf(&b, "\nthe story, shrunk from %d steps to %d:\n%s", len(first.Plan.Steps), len(r.Plan.Steps), r.Plan)
	fmt.Fprintf(&b, "\nwhat the relays said:\n%s", r.Log)
	fmt.Fprintf(&b, "\nthe whole of seed %d broke:\n", first.Plan.Seed)
	for _, v := range first.Broken {
		fmt.Fprintln(&b, v)
	}
	fmt.Fprintf(&b, "\nto repeat it: go test ./test/simulation -run TestHistories -sim.seed=%d\n", first.Plan.Seed)
	t.Error(b.String())
}
