package sink

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"walrelay/router"
)

// A topic is what the producer knows of one topic. Produce and the promises use what is atomic; the
// rest belongs to the goroutine of topics.run.
type topic struct {
	name    string
	facts   atomic.Pointer[facts]   // nil: not known, or not any more; Produce answers ErrPending
	limit   atomic.Int32            // of a batch, for kgo, which asks once per partition and client
	wanted  atomic.Bool             // handed to topics.run, which has not finished with it
	refused atomic.Pointer[refusal] // the broker's last answer, where it was of class Topic

	found   *facts    // what the last lookup found
	due     time.Time // next lookup
	first   time.Time // first lookup of this round
	since   time.Time // when it was first missing or refused; zero while it can be written to
	tries   int       // lookups that failed in this round
	reopens int       // times it was opened again although the broker had refused a record
	said    error     // what was last logged about it
	missing bool      // it did not exist when it was looked up in this round

	client      *kgo.Client // the client that has met it, and what that client holds on to:
	clientID    [16]byte
	clientLimit int32
	replacedFor *refusal // the client was already replaced because of this answer

	advised advised // any goroutine
	seen    seen
}

// A refusal is a failed record's error of class Topic.
type refusal struct{ err error }

type topicState uint8

const (
	topicOpen topicState = iota
	topicPending
	topicUnwritable

	topicStates
)

func (s topicState) String() string { return [topicStates]string{"open", "pending", "unwritable"}[s] }

func (t *topic) state() topicState {
	switch f := t.facts.Load(); {
	case f == nil:
		return topicPending
	case f.err == nil:
		return topicOpen
	}
	return topicUnwritable
}

// facts are what a record is checked against. They do not change; newer ones replace them.
type facts struct {
	id        [16]byte // zero where the broker has no topic ids (before 2.8)
	limit     int32    // bytes of the largest batch: the smaller of KAFKA_MAX_MESSAGE_BYTES and the topic's max.message.bytes
	compacted bool
	read      time.Time

	partitions, replicas int
	minInSync            int // 0: not known

	err error // *TopicError or *RowError, where nothing can be written to the topic
}

// How old facts may be to condemn a row, and how old to be looked at again.
const (
	factsFresh   = 10 * time.Second
	factsRefresh = 5 * time.Minute
)

func (f *facts) old(now time.Time) bool { return f.err == nil && now.Sub(f.read) > factsFresh }

// check finds what Kafka would reject the record for.
func (f *facts) check(r *router.Record, size int, own int32) error {
	switch {
	case f.err != nil:
		return f.err
	case size > int(own):
		return &RowError{r.Topic, TooLarge, fmt.Errorf(
			"the record is a batch of %d bytes and KAFKA_MAX_MESSAGE_BYTES is %d: raise it, and the topic's max.message.bytes where that is lower", size, own)}
	case size > int(f.limit):
		return &RowError{r.Topic, TooLarge, fmt.Errorf(
			"the record is a batch of %d bytes and the topic's max.message.bytes is %d: raise it with kafka-configs.sh --alter --entity-type topics --entity-name %s --add-config max.message.bytes=%d",
			size, f.limit, r.Topic, size)}
	case f.compacted && r.Key == nil:
		return &RowError{r.Topic, NoKey, fmt.Errorf(
			"the record has no key and the topic is compacted: give the row a partition key or an aggregate id, or set the topic's cleanup.policy to delete")}
	}
	return nil
}

// topics looks up, creates and remembers topics. Those that Produce wants are queued; one goroutine,
// run, works the queue off and nudges Wake.
type topics struct {
	p   *Producer
	ask chan struct{}

	mu struct {
		sync.Mutex
		byName map[string]*topic
		queue  []*topic
	}

	configsRefused bool // said once
	configsFailed  int  // requests for topic configs that failed in a row
}

func newTopics(p *Producer) *topics {
	ts := &topics{p: p, ask: make(chan struct{}, 1)}
	ts.mu.byName = make(map[string]*topic)
	return ts
}

func (ts *topics) get(name string) *topic {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	t := ts.mu.byName[name]
	if t == nil {
		t = &topic{name: name}
		ts.mu.byName[name] = t
	}
	return t
}

func (ts *topics) count(s topicState) int {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	n := 0
	for _, t := range ts.mu.byName {
		if t.state() == s {
			n++
		}
	}
	return n
}

// accepted notes that the broker took a record of a topic. When it had refused one before, that is over.
func (ts *topics) accepted(t *topic) {
	if t.refused.Load() != nil {
		t.refused.Store(nil)
		ts.want(t) // to say so
	}
}

// want queues a topic for lookup, once.
func (ts *topics) want(t *topic) {
	if !t.wanted.CompareAndSwap(false, true) {
		return
	}
	ts.mu.Lock()
	ts.mu.queue = append(ts.mu.queue, t)
	ts.mu.Unlock()
	nudge(ts.ask)
}

// batchLimit is what kgo asks for when it meets a partition. The topic has been looked up by then.
func (ts *topics) batchLimit(name string) int32 {
	ts.mu.Lock()
	t := ts.mu.byName[name]
	ts.mu.Unlock()
	if t != nil {
		if limit := t.limit.Load(); limit > 0 {
			return limit
		}
	}
	return ts.p.cfg.MaxMessageBytes
}

// run looks topics up until ctx ends.
func (ts *topics) run(ctx context.Context) error {
	refresh := time.NewTicker(factsRefresh)
	defer refresh.Stop()
	timer := time.NewTimer(0)
	defer timer.Stop()
	waiting := make(map[*topic]struct{})
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ts.ask:
		case <-timer.C:
		case <-refresh.C:
			ts.wantAll()
		}
		ts.take(waiting)
		if err := ts.p.revive(ctx); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		if err := ts.lookupDue(ctx, waiting); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		timer.Reset(untilDue(waiting))
	}
}

// take moves what is queued to waiting.
func (ts *topics) take(waiting map[*topic]struct{}) {
	ts.mu.Lock()
	queue := ts.mu.queue
	ts.mu.queue = nil
	ts.mu.Unlock()
	now := time.Now()
	for _, t := range queue {
		waiting[t] = struct{}{}
		t.due, t.first, t.tries, t.missing = now, now, 0, false
		if t.refused.Load() == nil {
			t.reopens = 0
			continue
		}
		// The topic is there and the broker refuses its records: without a pause sessions would
		// follow each other as fast as they can be made.
		t.due = now.Add(reopenAfter(t.reopens))
		t.reopens++
	}
}

// reopenAfter is the pause before a topic is tried again: none at first, since the cause is mostly a
// broker that has not heard of a new topic yet, then 250 ms, doubled up to 8 s.
func reopenAfter(reopens int) time.Duration {
	if reopens == 0 {
		return 0
	}
	return 250 * time.Millisecond << min(reopens-1, 5)
}

// wantAll queues every topic that can be written to, to see whether it still is what it was. Such a
// topic stays open meanwhile.
func (ts *topics) wantAll() {
	ts.mu.Lock()
	all := make([]*topic, 0, len(ts.mu.byName))
	for _, t := range ts.mu.byName {
		if f := t.facts.Load(); f != nil && f.err == nil {
			all = append(all, t)
		}
	}
	ts.mu.Unlock()
	for _, t := range all {
		ts.want(t)
	}
}

// untilDue is the time until the next lookup; long where there is none.
func untilDue(waiting map[*topic]struct{}) time.Duration {
	next := time.Hour
	for t := range waiting {
		next = min(next, time.Until(t.due))
	}
	return max(next, 0)
}

// perRequest bounds the topics in one request.
const perRequest = 100

// lookupDue looks up what is due and opens what can be written to. Topics that it has not finished
// with stay in waiting.
func (ts *topics) lookupDue(ctx context.Context, waiting map[*topic]struct{}) error {
	now := time.Now()
	due := make(map[string]*topic)
	for t := range waiting {
		if !t.due.After(now) {
			due[t.name] = t
			if len(due) == perRequest {
				break
			}
		}
	}
	if len(due) == 0 {
		return nil
	}
	if err := ts.lookup(ctx, due); err != nil {
		ts.p.reach.answered(err)
		for _, t := range due {
			t.tries++
			t.due = time.Now().Add(backoff(t.tries))
		}
		return ctx.Err()
	}
	ts.p.reach.answered(nil)
	return ts.open(ctx, due, waiting)
}

// open publishes what lookup found, after a change of client where that is needed.
func (ts *topics) open(ctx context.Context, due map[string]*topic, waiting map[*topic]struct{}) error {
	for _, t := range due {
		if t.found == nil || t.found.err != nil || !ts.outgrown(t) {
			continue
		}
		if err := ts.p.replaceClient(ctx, "topic "+t.name+" was deleted and made again, or its limits changed"); err != nil {
			return err
		}
	}
	client := ts.p.client.Load()
	opened := false
	for _, t := range due {
		f := t.found
		if f == nil {
			continue
		}
		t.found = nil
		if f.err == nil {
			t.client, t.clientID, t.clientLimit = client, f.id, f.limit
			t.limit.Store(f.limit)
			ts.mended(t)
		}
		if _, unwritable := errors.AsType[*TopicError](f.err); !unwritable {
			delete(waiting, t)
			t.wanted.Store(false)
		} else if t.state() == topicUnwritable {
			continue // and stays so
		}
		t.facts.Store(f)
		opened = true
	}
	if opened {
		nudge(ts.p.wake)
	}
	return nil
}

// outgrown reports whether the client holds on to something about the topic that is not true any more.
func (ts *topics) outgrown(t *topic) bool {
	if t.client != ts.p.client.Load() {
		return false // this client has not met the topic
	}
	if t.found.limit != t.clientLimit || t.found.id != t.clientID {
		return true
	}
	if t.missing && t.found.id == [16]byte{} {
		return true // made again, on a broker without topic ids
	}
	// It may also follow another topic of that name although we never saw one.
	r := t.refused.Load()
	if r == nil || r == t.replacedFor || !errors.Is(r.err, kerr.UnknownTopicID) && !errors.Is(r.err, kerr.InconsistentTopicID) {
		return false
	}
	t.replacedFor = r
	return true
}
