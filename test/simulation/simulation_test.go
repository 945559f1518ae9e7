package simulation

import (
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
	runs = flag.Int("sim.runs", 0, "histories to play; 0: 500, or 100 with -short, or 1 with -sim.seed")
	seed = flag.Uint64("sim.seed", 0, "seed of the first history; 0: 1")
	told = flag.Bool("sim.plan", false, "print the plan of each history")
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Every history keeps every promise. Seeds follow each other from -sim.seed on.
func TestHistories(t *testing.T) {
	n, first := uint64(*runs), *seed
	switch {
	case n > 0:
	case first > 0:
		n = 1
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
	began := time.Now()
	t.Cleanup(func() { t.Logf("%v in %v", total.Counts, time.Since(began).Round(time.Millisecond)) })
	for i := range runtime.GOMAXPROCS(0) {
		t.Run(fmt.Sprint("worker", i), func(t *testing.T) {
			t.Parallel()
			for !t.Failed() {
				i := next.Add(1) - 1
				if i >= n {
					return
				}
				r := history(t, Generate(first+i))
				total.Lock()
				total.add(r.Counts)
				total.Unlock()
			}
		})
	}
}

// realTime is how long one history may take by the clock on the wall. One that takes longer spins: in
// virtual time nothing waits.
const realTime = 3 * time.Minute

// history plays a plan and tells the story of one that breaks a promise.
func history(t *testing.T, p Plan) Result {
	t.Helper()
	if *told {
		t.Log(p)
	}
	watchdog := time.AfterFunc(realTime, func() {
		buf := make([]byte, 1<<20)
		fmt.Fprintf(os.Stderr, "seed %d does not end:\n%s\n%s\n", p.Seed, p, buf[:runtime.Stack(buf, true)])
		os.Exit(2)
	})
	r := play(t, p)
	watchdog.Stop()
	if len(r.Broken) > 0 {
		story(t, r)
	}
	return r
}

func story(t *testing.T, r Result) {
	t.Helper()
	first := r
	r = Shrink(t, r, time.Minute)
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
