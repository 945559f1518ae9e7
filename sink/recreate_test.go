package sink

import (
	"fmt"
	"sync"
	"testing"

	"walrelay/router"
)

// A topic that is deleted and made again has another id. kgo would fail its records for ever; the
// client is replaced, and no record is taken for one of the old topic.
func TestTopicDeletedAndMadeAgain(t *testing.T) {
	k := anyKafka(t)
	p := start(t, k, nil)
	topic := name(t, "again")
	p.send(0, topic, "k", "old")
	p.acks.wait(t, 1)
	k.delete(t, topic)
	// What a relay does: hand over, stop at the first failure, wait for all, begin again at it.
	token := uint64(1)
	for p.log.count("kafka client replaced") == 0 {
		p.send(token, topic, "k", fmt.Sprint(token))
		token++
		failed := p.acks.wait(t, int(token))
		if err := failed[token-1]; err != nil && Classify(err) != Topic {
			t.Fatalf("token %d: %v", token-1, err)
		}
	}
	const n = 10
	first := token
	for ; token < first+n; token++ {
		p.send(token, topic, "k", fmt.Sprint(token))
	}
	failed := p.acks.wait(t, int(token))
	for ; first < token; first++ {
		if failed[first] != nil {
			t.Errorf("token %d: %v", first, failed[first])
		}
	}
	acked := int(token) - len(failed) - 1 // without the record of the old topic
	if end := k.end(t, topic); int(end) > acked || end < n {
		t.Errorf("%d records on the new topic, %d acknowledged since", end, acked)
	}
}

// The same under load, by a relay in small: it hands over as long as nothing failed, and then begins
// again at the first record that was not acknowledged. On the new topic each key's records follow each
// other without a gap up to the last.
func TestTopicDeletedUnderLoad(t *testing.T) {
	k := anyKafka(t)
	p := start(t, k, func(c *Config) { c.TopicPartitions = 3 })
	topic := name(t, "load")
	const keys, total, deleteAt = 10, 12_000, 3_000
	deleted := make(chan struct{})
	sessions := 0
	for prefix := 0; prefix < total; sessions++ {
		session := &session{first: prefix, acked: make([]bool, total)}
		for next := prefix; next < total && !session.failed(); next++ {
			if next == deleteAt && sessions == 0 {
				go func() { defer close(deleted); k.delete(t, topic) }()
			}
			rec := router.Record{Topic: topic, Key: fmt.Append(nil, "k", next%keys), Value: fmt.Append(nil, next/keys)}
			if err := p.offer(session, uint64(next), rec); err != nil {
				t.Fatal(err)
			}
		}
		if err := p.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		prefix = session.prefix()
	}
	<-deleted
	t.Logf("%d sessions", sessions)
	if sessions < 2 {
		t.Skip("the topic was deleted too late to matter")
	}
	got := k.read(t, topic, int(k.end(t, topic)))
	last := make(map[string]int)
	for _, records := range got {
		for _, r := range records {
			var n int
			if _, err := fmt.Sscan(string(r.Value), &n); err != nil {
				t.Fatal(err)
			}
			before, seen := last[string(r.Key)]
			if seen && n > before+1 {
				t.Fatalf("key %s: %d after %d", r.Key, n, before)
			}
			last[string(r.Key)] = max(n, before)
		}
	}
	for i := range keys {
		if key := fmt.Sprint("k", i); last[key] != total/keys-1 {
			t.Errorf("key %s ends with %d, want %d", key, last[key], total/keys-1)
		}
	}
}

// session is an Acker that knows its acknowledged prefix, as the relay's tracker does.
type session struct {
	mu    sync.Mutex
	first int
	acked []bool
	err   error
}

func (s *session) Acked(token uint64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = err
	}
	s.acked[token] = err == nil
}

func (s *session) failed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err != nil
}

func (s *session) prefix() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.first
	for n < len(s.acked) && s.acked[n] {
		n++
	}
	return n
}
