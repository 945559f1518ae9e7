package chaos

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"hash/maphash"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"walrelay/outbox"
	"walrelay/test/harness"
	"walrelay/test/harness/oracle"
)

// exemption is why a committed event may be missing from Kafka.
type exemption string

const (
	none         exemption = ""
	topicDeleted exemption = "may have been acknowledged on a topic that was deleted then"
	givenUp      exemption = "marked by the operator, as the relay's message says"
)

// event is one row of a transaction that somebody was about to commit.
type event struct {
	oracle.Committed
	topic     string
	value     uint64 // hash of the payload
	trace     string // its header
	committed bool
	seen      int       // records
	produced  time.Time // the first of them
	exempt    exemption
}

// A mark says that at that moment the relay had confirmed the first n events to PostgreSQL.
type mark struct {
	at time.Time
	n  int
}

// repeat is a record of an event that an earlier record was of.
type repeat struct {
	*event
	again time.Time // when it was produced
	where string
}

// ledger is what is known of all events: what writers committed, and what consumers have read. It also
// writes the ids to a file, one line before and one after each commit, for who wants to look at them
// when this process is gone.
type ledger struct {
	file    *os.File
	service string // in topics' names
	seed    maphash.Seed

	mu struct {
		sync.Mutex
		events   map[outbox.EventID]*event
		order    []*event // committed ones: for each key in commit order
		low      int      // all before this one are on Kafka, or exempt
		consumed []oracle.Consumed
		held     map[string]int64 // records of each topic: of its newest life
		repeats  []repeat
		marks    []mark
		forgets  []time.Time // restarts of PostgreSQL: slots may go back behind what was confirmed
		strange  []string    // faithful: what differs from its row
		phantoms []string    // records of no event
		unknown  struct{ committed, not int }
		moved    chan struct{} // closed when a record of a new event was read
	}
}

func newLedger(path, service string) (*ledger, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open the journal: %w", err)
	}
	l := &ledger{file: file, service: service, seed: maphash.MakeSeed()}
	l.mu.events, l.mu.held = map[outbox.EventID]*event{}, map[string]int64{}
	l.mu.moved = make(chan struct{})
	return l, nil
}

// write is one system call: it is in the file when this process is killed, whole.
func (l *ledger) write(word string, rows []oracle.Committed) error {
	var b strings.Builder
	b.WriteString(word)
	for _, r := range rows {
		b.WriteByte(' ')
		b.WriteString(hex.EncodeToString(r.EventID[:]))
	}
	b.WriteByte('\n')
	_, err := l.file.WriteString(b.String())
	return err
}

// Committing implements oracle.Journal.
func (l *ledger) Committing(events []oracle.Event, rows []oracle.Committed) error {
	l.mu.Lock()
	for i, e := range events {
		l.mu.events[rows[i].EventID] = &event{
			Committed: rows[i], topic: topicOf(l.service, e), value: maphash.String(l.seed, e.Payload), trace: traceOf(e),
		}
	}
	l.mu.Unlock()
	return l.write("committing", rows)
}

// Ended implements oracle.Journal.
func (l *ledger) Ended(rows []oracle.Committed, o oracle.Outcome) error {
	l.mu.Lock()
	word := "rolled-back"
	if o.Committed {
		word = "committed"
		for _, r := range rows {
			e := l.mu.events[r.EventID]
			e.committed = true
			l.mu.order = append(l.mu.order, e)
		}
	}
	if o.Unanswered {
		word += " unknown-at-first"
		if o.Committed {
			l.mu.unknown.committed += len(rows)
		} else {
			l.mu.unknown.not += len(rows)
		}
	}
	l.mu.Unlock()
	return l.write(word, rows)
}

// life sets a topic's records apart from those of a topic of its name that was deleted: their offsets
// begin anew, and come behind.
const life = int64(1) << 40

// read notes a record as a consumer saw it.
func (l *ledger) read(r *kgo.Record, generation int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.held[r.Topic]++
	where := fmt.Sprintf("%s %d/%d", r.Topic, r.Partition, r.Offset)
	id, ok := harness.EventIDOf(r)
	e := l.mu.events[id]
	if !ok || e == nil {
		l.mu.phantoms = append(l.mu.phantoms, where)
		return
	}
	l.mu.consumed = append(l.mu.consumed, oracle.Consumed{
		EventID: id, Topic: r.Topic, Key: string(r.Key), Partition: r.Partition, Offset: int64(generation)*life + r.Offset,
	})
	trace, _ := harness.HeaderOf(r, "trace")
	if r.Topic != e.topic || string(r.Key) != e.Key || trace != e.trace || maphash.Bytes(l.seed, r.Value) != e.value {
		l.mu.strange = append(l.mu.strange, fmt.Sprintf("%s at %s: key %q, trace %q, value %.60q", id, where, r.Key, trace, r.Value))
	}
	if e.seen++; e.seen > 1 {
		l.mu.repeats = append(l.mu.repeats, repeat{e, r.Timestamp, where})
		return
	}
	e.produced = r.Timestamp
	close(l.mu.moved)
	l.mu.moved = make(chan struct{})
}

// committed is the number of events that are known to have committed.
func (l *ledger) committed() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.mu.order)
}

// settled says whether the first n committed events are on Kafka or exempt. If not, moved is closed
// when there is reason to ask again.
func (l *ledger) settled(n int) (yes bool, moved <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.mu.low < len(l.mu.order) && (l.mu.order[l.mu.low].seen > 0 || l.mu.order[l.mu.low].exempt != none) {
		l.mu.low++
	}
	return l.mu.low >= n, l.mu.moved
}

// missing are those of the first n that are neither on Kafka nor exempt.
func (l *ledger) missing(n int) (all []*event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.mu.order[:n] {
		if e.seen == 0 && e.exempt == none {
			all = append(all, e)
		}
	}
	return all
}

// excuse exempts the unseen events of which which is true, those too that are about to commit.
func (l *ledger) excuse(why exemption, which func(*event) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.mu.events {
		if e.seen == 0 && e.exempt == none && which(e) {
			e.exempt = why
		}
	}
}

// confirmed notes that the first n events are confirmed to PostgreSQL now.
func (l *ledger) confirmed(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.marks = append(l.mu.marks, mark{time.Now(), n})
}

// forget notes that PostgreSQL restarts: what a slot had confirmed and not saved comes again.
func (l *ledger) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.forgets = append(l.mu.forgets, time.Now())
}

// confirmedBefore are the repeats of events that had been confirmed before they were produced again.
func (l *ledger) confirmedBefore() (all []repeat) {
	l.mu.Lock()
	defer l.mu.Unlock()
	place := make(map[*event]int, len(l.mu.order))
	for i, e := range l.mu.order {
		place[e] = i
	}
	for _, r := range l.mu.repeats {
		// Marks grow, so the last one before the record was produced says most.
		i, _ := slices.BinarySearchFunc(l.mu.marks, r.again, func(m mark, t time.Time) int { return m.at.Compare(t) })
		if i == 0 {
			continue
		}
		m := l.mu.marks[i-1]
		forgotten := slices.ContainsFunc(l.mu.forgets, func(t time.Time) bool { return t.After(m.at) && t.Before(r.again) })
		if at, known := place[r.event]; known && at < m.n && !forgotten {
			all = append(all, r)
		}
	}
	slices.SortFunc(all, func(a, b repeat) int { return cmp.Compare(place[a.event], place[b.event]) })
	return all
}

// heldOf is how many records of the newest topic of that name were read.
func (l *ledger) heldOf(topic string) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.held[topic]
}

// deleted notes that the topic's records are gone.
func (l *ledger) deleted(topic string) {
	l.mu.Lock()
	l.mu.held[topic] = 0
	l.mu.Unlock()
	l.excuse(topicDeleted, func(e *event) bool { return e.topic == topic })
}
