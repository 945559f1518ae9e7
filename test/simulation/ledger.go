package simulation

import (
	"encoding/hex"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"walrelay/outbox"
	"walrelay/sink"
)

// ledger knows what each relay handed over to its Kafka client and what that client said of it. It
// sees both through hooks of the client, just before the relay is told, so that it never knows less
// than the relay.
type ledger struct {
	mu     sync.Mutex
	events map[outbox.EventID]*fate
	deeds  []deed
	wrong  []string // records that are no event's
}

// fate is what has become of one event so far.
type fate struct {
	id     outbox.EventID
	handed int
	first  time.Time // when it was handed over first
	acked  bool
	given  bool // an operator has given it up
	failed []failure
}

// failure is a record that Kafka did not take.
type failure struct {
	at    time.Time
	class sink.Class
}

// deed is one thing that a relay did, in the order of all.
type deed struct {
	at      time.Time
	process int
	what    verb
	event   *fate
}

type verb uint8

const (
	handed verb = iota
	acked
	failed
)

func newLedger() *ledger { return &ledger{events: make(map[outbox.EventID]*fate)} }

func (l *ledger) fateLocked(id outbox.EventID) *fate {
	f := l.events[id]
	if f == nil {
		f = &fate{id: id}
		l.events[id] = f
	}
	return f
}

// resolved is the judge's question.
func (l *ledger) resolved(id outbox.EventID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := l.events[id]
	return f != nil && (f.acked || f.given)
}

// giveUp notes that an operator gives an event up.
func (l *ledger) giveUp(id outbox.EventID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fateLocked(id).given = true
}

// rejected says whether a broker has rejected a batch with the event in it, or its topic.
func (l *ledger) rejected(id outbox.EventID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := l.events[id]
	if f == nil {
		return false
	}
	for _, x := range f.failed {
		if x.class == sink.Row || x.class == sink.Topic {
			return true
		}
	}
	return false
}

// hook is the ledger's view of one relay.
type hook struct {
	l       *ledger
	process *process
}

func (h hook) OnProduceRecordBuffered(r *kgo.Record)              { h.l.note(h.process, handed, r, nil) }
func (h hook) OnProduceRecordUnbuffered(r *kgo.Record, err error) { h.l.note(h.process, acked, r, err) }

func (l *ledger) note(p *process, what verb, r *kgo.Record, err error) {
	id, ok := eventOf(r)
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if !ok {
		l.wrong = append(l.wrong, "a record on topic "+r.Topic+" has no event_id header")
		return
	}
	f := l.fateLocked(id)
	switch {
	case what == handed:
		if f.handed++; f.handed == 1 {
			f.first = now
		}
	case err == nil:
		f.acked = true
	default:
		what = failed
		if p.killed.Load() {
			return // its client gives up what it had: nobody is told
		}
		f.failed = append(f.failed, failure{now, sink.Classify(err)})
	}
	l.deeds = append(l.deeds, deed{now, p.n, what, f})
}

// eventOf reads the event id of a record.
func eventOf(r *kgo.Record) (id outbox.EventID, ok bool) {
	for _, h := range r.Headers {
		if h.Key == "event_id" {
			return parseID(h.Value)
		}
	}
	return id, false
}

// parseID reads the text form of a uuid.
func parseID(text []byte) (id outbox.EventID, ok bool) {
	if len(text) != 36 {
		return id, false
	}
	var digits [32]byte
	n := 0
	for i, c := range text {
		if i == 8 || i == 13 || i == 18 || i == 23 {
			continue
		}
		digits[n] = c
		n++
	}
	_, err := hex.Decode(id[:], digits[:])
	return id, err == nil
}
