// Package chaos runs the built program between a real PostgreSQL and a real Kafka under load, makes
// trouble for all three of them, and says of each promise whether it held.
package chaos

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"walrelay/test/harness"
	"walrelay/test/integration/fixture"
)

var (
	lasts = flag.Duration("chaos.for", 90*time.Second, "how long the run lasts, start and end of the servers aside")
	seed  = flag.Uint64("chaos.seed", 0, "of the schedule; 0: a random one")
	modes = flag.String("chaos.mode", "wal,polling", "RELAY_MODE; one run for each")
	only  = flag.String("chaos.only", "", "regular expression of the kinds of faults; all where empty")
)

const (
	// longRun and longer runs, and those of chosen faults, have faults that take longer than the time-outs they are about.
	longRun = 5 * time.Minute

	// reserve is the part of a run in which no fault begins any more.
	reserve = 10 * time.Second
)

func TestMain(m *testing.M) { os.Exit(fixture.Run(m)) }

func TestChaos(t *testing.T) {
	for mode := range strings.SplitSeq(*modes, ",") {
		t.Run(mode, func(t *testing.T) { chaos(t, mode) })
	}
}

func chaos(t *testing.T, mode string) {
	if *seed == 0 {
		*seed = rand.Uint64N(1_000_000) + 1
	}
	which, err := regexp.Compile(*only)
	if err != nil {
		t.Fatal(err)
	}
	var chosen []fault
	for _, f := range kinds(mode) {
		if which.MatchString(f.kind) {
			chosen = append(chosen, f)
		}
	}
	if len(chosen) == 0 {
		t.Fatalf("no kind of fault matches %q", *only)
	}
	majors, err := harness.Majors(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(majors) == 0 {
		harness.Skip(t, t.Name(), "no PostgreSQL is installed")
	}
	kafka := harness.OwnKafka(t, harness.ViaProxy())
	major := majors[rand.New(rand.NewPCG(*seed, 0)).IntN(len(majors))]
	server := harness.Fresh(t, harness.Major(major))
	servers := fmt.Sprintf("PostgreSQL %d, %s", major, kafka.What)
	w := newWorld(t, mode, *seed, server, kafka)
	w.long, w.until = *lasts >= longRun || *only != "", w.began.Add(*lasts-reserve)
	w.log("RELAY_MODE=%s, seed %d: %s", mode, w.seed, servers)
	w.begin()
	plan := schedule{seed: w.seed, long: w.long, kinds: chosen}
	whole := w.calm()
	for ; whole && time.Now().Before(w.until); whole = w.calm() {
		f, r := plan.next()
		f.run(w, r)
		w.lives()
	}
	w.finish(whole)
	if err := w.end(); err != nil {
		t.Fatal(err)
	}
	w.report(w.judge(), servers)
	for _, f := range chosen {
		if f.needs == always && w.faults[f.kind] == 0 && *only == "" {
			t.Errorf("no time was left for %q: nothing was shown of it", f.kind)
		}
	}
}
