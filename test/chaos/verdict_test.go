package chaos

import (
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"
	"time"

	"walrelay/outbox"
	"walrelay/test/harness/oracle"
	"walrelay/test/integration/fixture"
)

// The promises, as DESIGN.md section 1 names them.
const (
	delivered         = "delivered"
	noEarlyAck        = "no early ack"
	ordered           = "ordered"
	boundedDuplicates = "bounded duplicates"
	faithful          = "faithful"
	progress          = "progress"
	boundedMemory     = "bounded memory"
	nothingDropped    = "nothing dropped"
	harmless          = "harmless"
)

// memoryLimit is the default of RELAY_MEMORY_LIMIT.
const memoryLimit = 64 << 20

// finish ends the writers and the relay. When everything went well so far, the relay has nothing left to
// do by then.
func (w *world) finish(whole bool) {
	if err := w.endWrites(); err != nil {
		w.t.Fatal(err)
	}
	w.log("the writers have stopped")
	if began := time.Now(); whole && w.drained() {
		w.lag = time.Since(began)
	}
	w.remember()
	w.relay.Terminate(w.t)
	if code := w.relay.Code(w.t); code != 0 && whole {
		w.broke(progress, "after SIGTERM the relay ended with exit code %d:\n%s", code, tail(w.relay.Log()))
	}
	if err := w.readToEnd(fixture.Within(w.t, fixture.Limit)); err != nil {
		w.t.Fatal(err)
	}
}

// drained waits until the relay has published, marked and confirmed everything.
func (w *world) drained() bool {
	ctx := fixture.Within(w.t, lagLimit)
	if !w.published(ctx, w.ledger.committed()) {
		return false
	}
	err := until(ctx, "every row is marked", func() (bool, string) {
		w.lives()
		n := w.f.DB.Text(w.t, unmarked)
		return n == "0", n + " are not"
	})
	if err != nil {
		w.broke(progress, "%v\n%s", err, tail(w.relay.Log()))
		return false
	}
	return w.confirmed(ctx)
}

// verdict is how the run ended, promise by promise.
type verdict struct {
	oracle.Verdict
	lost     []oracle.Committed
	exempt   map[exemption]int
	repeated []repeat // confirmed before
	same     int      // repeats by the process that had produced the first
}

// judge compares what was committed with what was read. Nothing runs any more.
func (w *world) judge() verdict {
	l := w.ledger
	v := verdict{exempt: map[exemption]int{}, repeated: l.confirmedBefore()}
	for _, r := range l.mu.repeats {
		// Of the relays that were started before the two records, the last ones are the same.
		before := func(t time.Time) int {
			return sort.Search(len(w.starts), func(i int) bool { return w.starts[i].After(t) })
		}
		if before(r.produced) == before(r.again) {
			v.same++
		}
	}
	committed := make([]oracle.Committed, len(l.mu.order))
	known := make(map[outbox.EventID]bool, len(l.mu.order))
	for i, e := range l.mu.order {
		committed[i], known[e.EventID] = e.Committed, true
	}
	v.Verdict = oracle.Judge(committed, l.mu.consumed)
	for _, c := range v.Lost {
		if why := l.mu.events[c.EventID].exempt; why != none {
			v.exempt[why]++
			continue
		}
		v.lost = append(v.lost, c)
	}
	if n := len(v.lost); n > 0 {
		w.broke(delivered, "%d of %d committed events are not on Kafka: %s", n, len(committed), first(v.lost))
	}
	if n := len(v.Swapped); n > 0 {
		w.broke(ordered, "%d events came after a later one of their key: %s", n, first(v.Swapped))
	}
	if n := len(v.Phantom) + len(l.mu.phantoms); n > 0 {
		w.broke(delivered, "%d records are of no committed row: %s; %s", n, first(v.Phantom), first(l.mu.phantoms))
	}
	if n := len(v.Rekeyed) + len(l.mu.strange); n > 0 {
		w.broke(faithful, "%d records differ from their rows: %s", n, first(l.mu.strange))
	}
	for _, r := range v.repeated[:min(len(v.repeated), 5)] {
		w.broke(boundedDuplicates, "event %s at %s, produced at %s, had been confirmed before", r.EventID, r.where, r.again.Format(time.StampMilli))
	}
	if w.peak > memoryLimit {
		w.broke(boundedMemory, "%d KiB were resident, more than %d", w.peak>>10, memoryLimit>>10)
	}
	w.compareTable(known)
	return v
}

// compareTable looks whether the oracle itself knew everything: rows are kept when they are marked.
func (w *world) compareTable(known map[outbox.EventID]bool) {
	inTable := 0
	for _, row := range w.f.Rows(w.t) {
		if slices.Contains(w.poison, row.EventID.String()) {
			continue
		}
		inTable++
		if !known[row.EventID] {
			w.t.Errorf("the oracle is wrong: row %d %s is in the table and counts as not committed", row.RowID, row.EventID)
		}
	}
	if inTable != len(known) {
		w.t.Errorf("the oracle is wrong: %d rows are in the table and %d count as committed", inTable, len(known))
	}
}

func first[T any](all []T) string {
	var b strings.Builder
	for i, one := range all {
		if i == 5 {
			fmt.Fprintf(&b, "; and %d more", len(all)-i)
			break
		}
		if i > 0 {
			b.WriteString("; ")
		}
		fmt.Fprintf(&b, "%+v", one)
	}
	return b.String()
}

// report prints the summary and fails the test for each broken promise.
func (w *world) report(v verdict, servers string) {
	l := w.ledger
	total := 0
	var faults []string
	for _, kind := range slices.Sorted(maps.Keys(w.faults)) {
		total += w.faults[kind]
		faults = append(faults, fmt.Sprintf("%s %d", kind, w.faults[kind]))
	}
	records := len(l.mu.consumed)
	fmt.Fprintf(w.out, "\nRELAY_MODE=%s, seed %d: %s, %v\n", w.mode, w.seed, servers, time.Since(w.began).Round(time.Second))
	fmt.Fprintf(w.out, "  %d faults: %s\n", total, strings.Join(faults, ", "))
	fmt.Fprintf(w.out, "  %d events written, %d records on Kafka, %d relays started\n", len(l.mu.order), records, len(w.starts))
	fmt.Fprintf(w.out, "  unknown outcomes: %d rows whose COMMIT was not answered were committed, %d were not\n", l.mu.unknown.committed, l.mu.unknown.not)
	fmt.Fprintf(w.out, "  exempt: %d given up by the operator, %d possibly acknowledged on a deleted topic, %d poison rows\n",
		v.exempt[givenUp], v.exempt[topicDeleted], len(w.poison))
	notes := map[string]string{
		delivered:         fmt.Sprintf("lost %d", len(v.lost)),
		noEarlyAck:        fmt.Sprintf("the slot was compared with the table %d times", w.mu.looks),
		ordered:           fmt.Sprintf("order broken %d", len(v.Swapped)),
		boundedDuplicates: fmt.Sprintf("repeated %d, of them %d by the process that had produced them first, %d that had been confirmed", v.Duplicates, v.same, len(v.repeated)),
		faithful:          fmt.Sprintf("%d records differ from their rows", len(v.Rekeyed)+len(l.mu.strange)),
		progress:          fmt.Sprintf("no lag %.1f s after the last write", w.lag.Seconds()),
		boundedMemory:     fmt.Sprintf("at most %.1f MiB resident", float64(w.peak)/(1<<20)),
		nothingDropped:    "each exit named its reason and its remedy",
		harmless:          "every server stopped when asked",
	}
	if w.mode == polling {
		notes[noEarlyAck] = "there is no slot"
	}
	for _, promise := range []string{delivered, noEarlyAck, ordered, boundedDuplicates, faithful, progress, boundedMemory, nothingDropped, harmless} {
		state := "held"
		for _, b := range w.mu.broken {
			if b.promise == promise {
				state = "BROKEN"
				w.t.Errorf("promise %q is broken: %s", promise, b.story)
			}
		}
		fmt.Fprintf(w.out, "  %-18s %-6s %s\n", promise, state, notes[promise])
	}
	if w.t.Failed() {
		w.t.Logf("the same schedule again: go test ./test/chaos -v -timeout 1h -chaos.mode=%s -chaos.seed=%d -chaos.for=%v", w.mode, w.seed, *lasts)
	}
}
