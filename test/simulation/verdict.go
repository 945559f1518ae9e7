package simulation

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"walrelay/outbox"
	"walrelay/test/pgfake"
)

// Promises of DESIGN.md section 1 by which failures are named; pgfake names some more.
const (
	Delivered         = pgfake.Delivered
	Ordered           = "ordered"
	BoundedDuplicates = "bounded duplicates"
	BoundedMemory     = "bounded memory"
	Faithful          = "faithful"
	NothingDropped    = "nothing dropped"
	Progress          = "progress"
	NothingRuns       = "nothing runs" // after Run has returned
)

// Violation is a promise that a history has seen broken.
type Violation struct {
	Promise string
	At      time.Duration // of the history; 0: found at its end
	Story   string
}

func (v Violation) String() string {
	if v.At == 0 {
		return fmt.Sprintf("promise %q is broken: %s", v.Promise, v.Story)
	}
	return fmt.Sprintf("promise %q is broken at %.3fs: %s", v.Promise, v.At.Seconds(), v.Story)
}

// Result is what has become of a plan.
type Result struct {
	Plan   Plan
	Broken []Violation
	Log    string
	Counts
}

// Counts say that something has happened at all.
type Counts struct {
	Histories, Events, Records, Repeated, Overtaken int
	Processes, Statuses                             int
	Hits, Skipped                                   int
	Poison, Persons                                 int
	Full                                            int            // histories in which a window was full
	Kinds                                           map[string]int // steps by kind
}

func (c *Counts) add(d Counts) {
	c.Histories += d.Histories
	c.Events += d.Events
	c.Records += d.Records
	c.Repeated += d.Repeated
	c.Overtaken += d.Overtaken
	c.Processes += d.Processes
	c.Statuses += d.Statuses
	c.Hits += d.Hits
	c.Skipped += d.Skipped
	c.Poison += d.Poison
	c.Persons += d.Persons
	c.Full += d.Full
	for kind, n := range d.Kinds {
		c.Kinds[kind] += n
	}
}

func (c Counts) String() string {
	s := fmt.Sprintf("%d histories: %d events, %d records, %d repeated, %d overtaken after a rejection; %d relays, %d statuses judged, %d requests answered with an error, %d exits for a poison row, %d for another reason, window full in %d histories, %d faults skipped\n",
		c.Histories, c.Events, c.Records, c.Repeated, c.Overtaken, c.Processes, c.Statuses, c.Hits, c.Poison, c.Persons, c.Full, c.Skipped)
	for _, kind := range slices.Sorted(maps.Keys(c.Kinds)) {
		s += fmt.Sprintf("%s %d, ", kind, c.Kinds[kind])
	}
	return strings.TrimSuffix(s, ", ")
}

// say notes a broken promise. The first few of each are enough.
func (w *world) say(promise, format string, args ...any) {
	w.sayAt(time.Since(w.began), promise, format, args...)
}

func (w *world) sayAt(at time.Duration, promise, format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	same := 0
	for _, v := range w.broken {
		if v.Promise == promise {
			same++
		}
	}
	if same < 3 {
		w.broken = append(w.broken, Violation{promise, at, fmt.Sprintf(format, args...)})
	}
}

// The bounds of what is on its way, as replication states them.
const (
	windowRows  = 16384
	windowBytes = 2 << 20
)

// noteMemory holds a relay's window against its bounds.
func (w *world) noteMemory(p *process) {
	st := p.relay.Status()
	w.mu.Lock()
	row := w.row + 1024 // its other columns
	w.mu.Unlock()
	if st.InFlight+st.Unsettled > windowRows*9/10 || st.InFlightBytes > windowBytes*9/10 {
		w.mu.Lock()
		w.counts.Full = 1
		w.mu.Unlock()
	}
	if n := st.InFlight + st.Unsettled; n > windowRows {
		w.say(BoundedMemory, "relay %d holds %d rows (%d in flight, %d to be settled), and the window is %d", p.n, n, st.InFlight, st.Unsettled, windowRows)
	}
	if st.InFlightBytes > windowBytes+row {
		w.say(BoundedMemory, "relay %d holds %d bytes in flight, and the window is %d and one row", p.n, st.InFlightBytes, windowBytes)
	}
}

// expected is an event that must be on Kafka, in the order of commits.
type expected struct {
	at    int // in that order
	row   pgfake.Row
	txn   *pgfake.Txn
	seen  int // records
	given bool
}

// history is the server's truth at the end: what it has committed.
func (w *world) history() ([]*expected, map[outbox.EventID]*expected) {
	var order []*expected
	byID := make(map[outbox.EventID]*expected)
	for _, txn := range w.pg.Txns() {
		for _, r := range txn.Rows() {
			if r.Relation != "" || !r.PublishedAt.IsZero() {
				continue
			}
			e := &expected{at: len(order), row: r, txn: txn}
			if f := w.ledger.events[r.EventID]; f != nil {
				e.given = f.given
			}
			order = append(order, e)
			byID[r.EventID] = e
		}
	}
	return order, byID
}

// judge holds the end of the history against the promises. Nothing runs any more.
func (w *world) judge(records []*kgo.Record) {
	order, byID := w.history()
	for _, wrong := range w.ledger.wrong {
		w.sayAt(0, Faithful, "%s", wrong)
	}
	w.counts.Events, w.counts.Records = len(order), len(records)
	w.judgeRecords(records, byID)
	w.judgeDelivery(order)
	w.judgeOrder(records, byID)
	w.judgeDuplicates(order, byID)
	for _, v := range w.pg.Judge().Violations() {
		w.sayAt(v.At.Sub(w.began), v.Promise, "%s", v.Story)
	}
	for _, sql := range w.pg.Unhandled() {
		w.sayAt(0, NothingRuns, "pgfake has no handler for %s", sql)
	}
}

// judgeRecords holds each record against its row, and against what was handed over.
func (w *world) judgeRecords(records []*kgo.Record, byID map[outbox.EventID]*expected) {
	copies := make(map[outbox.EventID]int)
	for _, r := range records {
		id, ok := eventOf(r)
		if !ok {
			w.sayAt(0, Faithful, "a record on %s has no event id", r.Topic)
			continue
		}
		if copies[id]++; copies[id] > 1 {
			w.counts.Repeated++
		}
		e := byID[id]
		if e == nil {
			continue // of a history that the server has lost: a phantom
		}
		e.seen++
		topic, key := routed(e.row)
		if r.Topic != topic || string(r.Key) != key || !bytes.Equal(r.Value, e.row.Payload) {
			w.sayAt(0, Faithful, "event %s is on topic %s with key %q and a value of %d bytes; it belongs on %s with key %q and %d bytes",
				id, r.Topic, r.Key, len(r.Value), topic, key, len(e.row.Payload))
		}
	}
	for id, n := range copies {
		if f := w.ledger.events[id]; n > f.handed && !w.forgot {
			w.sayAt(0, BoundedDuplicates, "event %s is on Kafka %d times and was handed over %d times", id, n, f.handed)
		}
	}
}

// routed is where a row belongs, by the documentation's words.
func routed(r pgfake.Row) (topic, key string) {
	topic, key = "app."+r.AggregateType+"."+r.EventType, r.AggregateID
	if r.Topic != nil {
		topic = *r.Topic
	}
	if r.PartitionKey != nil {
		key = *r.PartitionKey
	}
	return topic, key
}

func (w *world) judgeDelivery(order []*expected) {
	for _, e := range order {
		switch {
		case e.seen > 0:
		case e.given && w.poison[e.row.EventID]:
		case w.poison[e.row.EventID]:
			w.sayAt(0, NothingDropped, "poison event %s was passed over and nobody was told", e.row.EventID)
		default:
			w.sayAt(0, Delivered, "event %s (row %d, transaction %d) is not on Kafka", e.row.EventID, e.row.ID, uint32(e.txn.XID))
		}
	}
}

// judgeOrder looks at the first appearances of each key on each topic. One that the broker has
// rejected may be overtaken, by what was with Kafka already when it was rejected (H2).
func (w *world) judgeOrder(records []*kgo.Record, byID map[outbox.EventID]*expected) {
	type place struct{ topic, key string }
	seen := make(map[outbox.EventID]bool)
	before := make(map[place][]*expected)
	last := make(map[place]int) // the highest place in the order of commits so far, from 1 on
	for _, r := range records {
		id, _ := eventOf(r)
		e := byID[id]
		if e == nil || seen[id] {
			continue
		}
		seen[id] = true
		at := place{r.Topic, string(r.Key)}
		all := before[at]
		overtaken := 0
		for i := len(all) - 1; i >= 0 && e.at < last[at]; i-- {
			if all[i].at < e.at {
				continue
			}
			if w.overtook(all[i].row.EventID, id) {
				overtaken = 1
				continue
			}
			w.sayAt(0, Ordered, "key %q on topic %s: event %s (transaction %d) came before event %s (transaction %d), which was committed first",
				r.Key, r.Topic, all[i].row.EventID, uint32(all[i].txn.XID), id, uint32(e.txn.XID))
		}
		w.counts.Overtaken += overtaken
		before[at] = append(all, e)
		last[at] = max(last[at], e.at+1)
	}
}

// overtook says whether the first event could pass the second because a broker had rejected it.
func (w *world) overtook(first, second outbox.EventID) bool {
	f, s := w.ledger.events[first], w.ledger.events[second]
	if f == nil || s == nil {
		return false
	}
	for _, x := range s.failed {
		if !f.first.After(x.at) {
			return true
		}
	}
	return false
}

// kind names an action, and of a write how it ends.
func kind(a Action) string {
	if w, ok := a.(Write); ok {
		switch {
		case w.Poison != Sound:
			return "poison " + w.Poison.String()
		case w.How != Plain:
			return "transaction " + w.How.String()
		}
		return "transaction"
	}
	return strings.TrimPrefix(fmt.Sprintf("%T", a), "simulation.")
}

// memory is what a relay knows of the stream, as the ledger saw it.
type memory struct {
	from  time.Time // its session began later
	seen  time.Time // when it did anything last
	acked map[*fate]bool
	out   map[*fate]bool // handed over, and Kafka's answer has not come
	first int            // its first event, as a place in the order of commits
	last  int            // the last one handed over; a stream only goes forwards, so a step back is a new session
	known int            // what this session must not hand over again: everything from first up to here
}

// judgeDuplicates replays what each relay did. A session that follows another in one process does not
// hand over again what the process knows to be on Kafka: the longest run of events, from the first
// that it saw, that were acknowledged to it. Of a server with another history it knows nothing.
func (w *world) judgeDuplicates(order []*expected, byID map[outbox.EventID]*expected) {
	var given []*expected
	for _, e := range order {
		if e.given {
			given = append(given, e)
		}
	}
	memories := make(map[int]*memory)
	for _, d := range w.ledger.deeds {
		m := memories[d.process]
		if m == nil {
			m = &memory{acked: make(map[*fate]bool), out: make(map[*fate]bool), first: -1}
			memories[d.process] = m
		}
		if d.what == handed && m.out[d.event] {
			w.sayAt(d.at.Sub(w.began), BoundedDuplicates, "relay %d hands over event %s again while it waits for Kafka's answer to the first time", d.process, d.event.id)
		}
		m.out[d.event] = d.what == handed
		e := byID[d.event.id]
		switch {
		case d.what == acked:
			m.acked[d.event] = true
		case d.what != handed || e == nil:
		case m.first < 0:
			m.first, m.last, m.known = e.at, e.at, e.at
		default:
			if e.at <= m.last {
				if w.rewrittenSince(m.from, d.at) {
					m.first, m.known = e.at, e.at
					clear(m.acked)
				}
				m.from = m.seen
				for m.known < len(order) && m.acked[w.ledger.events[order[m.known].row.EventID]] {
					m.known++
				}
				clear(m.acked) // beyond known it was out of turn, and a session carries over no more than a prefix
			}
			for _, g := range given { // it has passed over it, so it knows that it may
				if f := w.ledger.events[g.row.EventID]; m.last < g.at && g.at < e.at {
					m.acked[f] = true
				}
			}
			m.last = e.at
			if e.at >= m.first && e.at < m.known {
				w.sayAt(d.at.Sub(w.began), BoundedDuplicates, "relay %d hands over event %s again, although it and every event before it was acknowledged to that relay", d.process, d.event.id)
			}
		}
		m.seen = d.at
	}
}

// rewrittenSince says whether the server was given another history in that time.
func (w *world) rewrittenSince(from, to time.Time) bool {
	for _, at := range w.rewritten {
		if !at.Before(from) && !at.After(to) {
			return true
		}
	}
	return false
}

// report fills in the result.
func (w *world) report(r *Result) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r.Broken = append(r.Broken, w.broken...)
	r.Log = w.log.String()
	r.Counts = w.counts
	r.Histories, r.Kinds = 1, make(map[string]int)
	for _, step := range w.plan.Steps {
		r.Kinds[kind(step.Do)]++
	}
	r.Processes, r.Statuses = w.processes, w.pg.Judge().Statuses()
	r.Hits, r.Skipped = w.hits, w.skipped
	r.Poison, r.Persons = w.exits["poison"], w.exits["person"]
}
