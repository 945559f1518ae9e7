package sink

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"walrelay/router"
)

func TestTopicIsCreatedWithTheBrokersDefaults(t *testing.T) {
	k := anyKafka(t)
	p := start(t, k, nil)
	topic := name(t, "new")
	p.send(0, topic, "k", "v")
	if failed := p.acks.wait(t, 1); len(failed) > 0 {
		t.Fatal(failed)
	}
	topics, err := k.admin.ListTopics(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d partitions", len(topics[topic].Partitions))
	if n := len(topics[topic].Partitions); k.fake != nil && n != 3 {
		t.Errorf("%d partitions", n)
	}
}

func TestTopicIsCreatedAsConfigured(t *testing.T) {
	k := anyKafka(t)
	p := start(t, k, func(c *Config) { c.TopicPartitions, c.TopicReplicationFactor = 7, 1 })
	topic := name(t, "new")
	p.send(0, topic, "k", "v")
	p.acks.wait(t, 1)
	topics, err := k.admin.ListTopics(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(topics[topic].Partitions); n != 7 {
		t.Errorf("%d partitions", n)
	}
}

func TestTopicThatCannotBeCreated(t *testing.T) {
	k := anyKafka(t)
	p := start(t, k, func(c *Config) { c.TopicReplicationFactor, c.UnknownTopicWait = 3, 1500*time.Millisecond })
	topic := name(t, "three-replicas")
	err := p.try(0, router.Record{Topic: topic, Key: []byte("k")})
	te, ok := errors.AsType[*TopicError](err)
	if !ok || !errors.Is(te, kerr.InvalidReplicationFactor) || !strings.Contains(te.Error(), "KAFKA_TOPIC_REPLICATION_FACTOR") {
		t.Fatalf("got %v", err)
	}
	if n := p.log.count("topic cannot be written to"); n != 1 {
		t.Errorf("logged %d times", n)
	}
}

func TestMissingTopicIsWaitedForThenGivenUpThenMended(t *testing.T) {
	k := anyKafka(t)
	p := start(t, k, func(c *Config) { c.TopicCreate, c.UnknownTopicWait = false, 300*time.Millisecond })
	topic := name(t, "missing")
	began := time.Now()
	err := p.try(0, router.Record{Topic: topic, Key: []byte("k")})
	te, ok := errors.AsType[*TopicError](err)
	if !ok || te.Topic != topic || !errors.Is(err, kerr.UnknownTopicOrPartition) || !strings.Contains(err.Error(), "KAFKA_TOPIC_CREATE=true") {
		t.Fatalf("got %v", err)
	}
	if waited := time.Since(began); waited < 300*time.Millisecond {
		t.Errorf("given up after %v", waited)
	}
	k.create(t, topic, 1, nil)
	// It is noticed without anybody asking.
	p.log.await(t, "topic can be written to again")
	p.send(0, topic, "k", "v")
	if failed := p.acks.wait(t, 1); len(failed) > 0 {
		t.Fatal(failed)
	}
	if n := p.log.count("topic cannot be written to"); n != 1 {
		t.Errorf("logged %d times", n)
	}
}

// A topic without a leader is a broker that is away, not a topic that somebody has to make.
func TestTopicWithoutLeaderIsWaitedFor(t *testing.T) {
	k := startFake(t, kfake.SeedTopics(1, "t"))
	away := k.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Topic: "t", Err: kerr.LeaderNotAvailable, Count: 5})
	p := start(t, k, func(c *Config) { c.UnknownTopicWait = 0 })
	p.send(0, "t", "k", "v")
	if failed := p.acks.wait(t, 1); len(failed) > 0 {
		t.Fatal(failed)
	}
	if n := away.Hits(); n != 5 {
		t.Errorf("asked %d times", n)
	}
}

func TestInvalidTopicNameIsARowError(t *testing.T) {
	k := anyKafka(t)
	if k.fake != nil { // which takes every name
		k.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Topic: "not a topic", Err: kerr.InvalidTopicException, Count: -1})
	}
	p := start(t, k, nil)
	err := p.try(0, router.Record{Topic: "not a topic", Key: []byte("k")})
	if row, ok := errors.AsType[*RowError](err); !ok || row.Reason != InvalidTopic {
		t.Fatalf("got %v", err)
	}
	// Another topic in the same breath is not held up by it.
	p.send(0, name(t, "fine"), "k", "v")
	p.acks.wait(t, 1)
}

// Describe is allowed and Write is not: metadata says nothing of it, the first record does. Sessions
// then follow each other with a pause, and the topic is given up after its time.
func TestWriteToTopicNotAllowed(t *testing.T) {
	k := startFake(t, kfake.SeedTopics(1, "t"))
	p := start(t, k, func(c *Config) { c.UnknownTopicWait = 500 * time.Millisecond })
	denied := k.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "t", Err: kerr.TopicAuthorizationFailed, Count: -1})
	token, began := uint64(0), time.Now()
	var err error
	for {
		if err = p.try(token, router.Record{Topic: "t", Key: []byte("k")}); err != nil {
			break
		}
		token++
		if failed := p.acks.wait(t, int(token)); Classify(failed[token-1]) != Topic {
			t.Fatalf("ack: %v", failed[token-1])
		}
	}
	te, ok := errors.AsType[*TopicError](err)
	if !ok || !strings.Contains(te.Remedy, "Write") {
		t.Fatalf("got %v", err)
	}
	if token > 5 || time.Since(began) < 500*time.Millisecond {
		t.Errorf("tried %d times in %v", token, time.Since(began))
	}
	if n := p.log.count("topic cannot be written to"); n != 1 {
		t.Errorf("logged %d times", n)
	}
	denied.Remove()
}

func TestConfigsThatMayNotBeRead(t *testing.T) {
	k := startFake(t, kfake.SeedTopics(1, "a", "b"))
	k.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.DescribeConfigs}, Err: kerr.TopicAuthorizationFailed, Count: -1})
	p := start(t, k, nil)
	p.send(0, "a", "k", "v")
	p.send(1, "b", "k", "v")
	if failed := p.acks.wait(t, 2); len(failed) > 0 {
		t.Fatal(failed)
	}
	if n := strings.Count(p.log.String(), "DescribeConfigs"); n != 1 {
		t.Errorf("said %d times", n)
	}
}

// Limits that changed are noticed when they would condemn a row, and when the broker rejects a batch.
func TestTopicsLimitIsChanged(t *testing.T) {
	k := anyKafka(t)
	p := start(t, k, func(c *Config) { c.Compression = "none" })
	topic := name(t, "limit")
	k.create(t, topic, 1, map[string]string{"max.message.bytes": "10000"})
	rec := router.Record{Topic: topic, Key: []byte("k"), Value: make([]byte, 20000)}
	if _, ok := errors.AsType[*RowError](p.try(0, rec)); !ok {
		t.Fatal("taken")
	}
	k.setLimit(t, topic, 50000)
	p.age(topic)
	if err := p.try(0, rec); err != nil {
		t.Fatalf("limit raised: %v", err)
	}
	if failed := p.acks.wait(t, 1); len(failed) > 0 {
		t.Fatalf("limit raised: %v", failed)
	}
	k.setLimit(t, topic, 5000)
	// The row was checked against the old limit.
	if err := p.try(1, rec); err != nil {
		t.Fatal(err)
	}
	if failed := p.acks.wait(t, 2); Classify(failed[1]) != Row {
		t.Fatalf("got %v", failed[1])
	}
	if row, ok := errors.AsType[*RowError](p.try(2, rec)); !ok || row.Reason != TooLarge {
		t.Fatalf("limit lowered: %v", row)
	}
}

// age makes what is known of a topic too old to condemn a row.
func (r *running) age(topic string) {
	t := r.topics.get(topic)
	old := *t.facts.Load()
	old.read = time.Now().Add(-2 * factsFresh)
	t.facts.Store(&old)
}

func TestRefreshNoticesAChangeWhileRecordsFlow(t *testing.T) {
	k := startFake(t, kfake.SeedTopics(3, "t", "other"))
	p := start(t, k, nil)
	p.send(0, "t", "k", "v")
	p.send(1, "other", "k", "v")
	p.acks.wait(t, 2)
	k.setLimit(t, "t", 5000)
	p.topics.wantAll()
	token := uint64(2)
	for ; p.log.count("kafka client replaced") == 0; token++ {
		p.send(token, "other", "k", "v")
	}
	if failed := p.acks.wait(t, int(token)); len(failed) > 0 {
		t.Fatalf("replacing the client failed records: %v", failed)
	}
	if limit := p.topics.batchLimit("t"); limit != 5000 {
		t.Errorf("limit %d", limit)
	}
	// The first batch of the new client is batch 0 as the old client's was, and no duplicate of it.
	p.send(token, "t", "k", "v")
	p.acks.wait(t, int(token)+1)
	if n := k.end(t, "t"); n != 2 {
		t.Errorf("%d records on the topic, want 2", n)
	}
}

// Refused credentials end Run, and so the relay, with what to check.
func TestRefusedCredentialsEndRun(t *testing.T) {
	k := startFake(t)
	k.fake.ControlKey(int16(kmsg.ApiVersions), func(req kmsg.Request) (kmsg.Response, error, bool) {
		k.fake.KeepControl()
		resp := req.ResponseKind().(*kmsg.ApiVersionsResponse)
		resp.ErrorCode = kerr.SaslAuthenticationFailed.Code
		return resp, nil, true
	})
	cfg := Config{Brokers: k.brokers, ClientID: "x", Compression: "none", MaxMessageBytes: 1 << 20, TopicPartitions: -1, TopicReplicationFactor: -1}
	p, err := New(cfg, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	err = p.Run(ctx)
	if !errors.Is(err, kerr.SaslAuthenticationFailed) {
		t.Fatalf("got %v", err)
	}
	p.Close(ctx)
}
