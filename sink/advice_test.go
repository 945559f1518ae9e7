package sink

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"walrelay/router"
)

// Many relays meet a new topic in the same moment: one makes it, and none takes the others' haste for a
// failure.
func TestTopicIsCreatedOnceWithItsConfig(t *testing.T) {
	k := anyKafka(t)
	topic := name(t, "new")
	var relays []*running
	for range 4 {
		relays = append(relays, start(t, k, func(c *Config) {
			c.TopicPartitions = 5
			c.TopicConfig = TopicConfig{{"retention.ms", "86400000"}, {"cleanup.policy", "compact,delete"}}
		}))
	}
	var all sync.WaitGroup
	for i, p := range relays {
		all.Go(func() { p.send(0, topic, fmt.Sprint(i), "v") })
	}
	all.Wait()
	created := 0
	for _, p := range relays {
		if failed := p.acks.wait(t, 1); len(failed) > 0 {
			t.Error(failed)
		}
		created += p.log.count("topic created")
		if strings.Contains(p.log.String(), "level=WARN") {
			t.Errorf("warnings:\n%s", p.log)
		}
	}
	if created != 1 {
		t.Errorf("created %d times", created)
	}
	configs, err := k.admin.DescribeTopicConfigs(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, c := range configs[0].Configs {
		got[c.Key] = c.MaybeValue()
	}
	if got["retention.ms"] != "86400000" || got["cleanup.policy"] != "compact,delete" {
		t.Errorf("retention.ms %q, cleanup.policy %q", got["retention.ms"], got["cleanup.policy"])
	}
}

func TestConfigThatTheBrokerDoesNotTake(t *testing.T) {
	k := anyKafka(t)
	if k.fake != nil { // which takes any
		k.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.CreateTopics}, Err: kerr.InvalidConfig, Count: -1})
	}
	p := start(t, k, func(c *Config) {
		c.TopicConfig, c.UnknownTopicWait = TopicConfig{{"no.such.setting", "1"}}, 200*time.Millisecond
	})
	err := p.try(0, router.Record{Topic: name(t, "new"), Key: []byte("k")})
	if te, ok := errors.AsType[*TopicError](err); !ok || !strings.Contains(te.Remedy, "KAFKA_TOPIC_CONFIG") {
		t.Errorf("got %v", err)
	}
}

// look has all topics looked up again, and waits for that.
func (r *running) look(topic string) {
	r.t.Helper()
	before := r.topics.get(topic).facts.Load()
	r.topics.wantAll()
	for deadline := time.Now().Add(patience); r.topics.get(topic).facts.Load() == before; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			r.t.Fatal("the topic is not looked up again")
		}
	}
}

func (r *running) expectRisk(k risk, said, topics int) {
	r.t.Helper()
	text := map[risk]string{oneReplicaIsEnough: "min.insync.replicas is 1", smallMessages: "max.message.bytes is below", partitionsChanged: "another number of partitions"}[k]
	if n := strings.Count(r.log.String(), text); n != said {
		r.t.Errorf("%v: said %d times, want %d", k, n, said)
	}
	if n := r.topics.countRisk(k); n != topics {
		r.t.Errorf("%v: %d topics, want %d", k, n, topics)
	}
}

// With one broker nobody can ask for more; with three it is said, once for each topic until it is mended.
func TestOneReplicaIsEnoughIsSaid(t *testing.T) {
	alone := startFake(t, kfake.SeedTopics(1, "t"))
	p := start(t, alone, nil)
	p.send(0, "t", "k", "v")
	p.expectRisk(oneReplicaIsEnough, 0, 0)

	k := startFake(t, kfake.NumBrokers(3))
	for _, topic := range []string{"a", "b"} {
		k.create(t, topic, 1, map[string]string{"min.insync.replicas": "1"})
	}
	p = start(t, k, nil)
	p.send(0, "a", "k", "v")
	p.send(1, "b", "k", "v")
	p.look("a")
	p.expectRisk(oneReplicaIsEnough, 2, 2)
	k.set(t, "a", "min.insync.replicas", "2")
	p.look("a")
	p.expectRisk(oneReplicaIsEnough, 2, 1)
	k.set(t, "a", "min.insync.replicas", "1")
	p.look("a")
	p.expectRisk(oneReplicaIsEnough, 3, 2)
}

func TestSmallerLimitOfATopicIsSaid(t *testing.T) {
	k := anyKafka(t)
	topic := name(t, "small")
	k.create(t, topic, 1, map[string]string{"max.message.bytes": "5000"})
	p := start(t, k, nil)
	p.send(0, topic, "k", "v")
	p.look(topic)
	p.expectRisk(smallMessages, 1, 1)
	k.set(t, topic, "max.message.bytes", "2000000")
	p.look(topic)
	p.expectRisk(smallMessages, 1, 0)
}

func TestChangeOfPartitionsIsSaid(t *testing.T) {
	k := anyKafka(t)
	topic := name(t, "grows")
	k.create(t, topic, 2, nil)
	p := start(t, k, nil)
	p.send(0, topic, "k", "v")
	p.look(topic)
	p.expectRisk(partitionsChanged, 0, 0)
	if _, err := k.admin.UpdatePartitions(t.Context(), 6, topic); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(patience); p.topics.countRisk(partitionsChanged) == 0 && time.Now().Before(deadline); {
		p.look(topic) // a broker learns of new partitions a moment later
	}
	p.look(topic)
	p.expectRisk(partitionsChanged, 1, 1)
	if !strings.Contains(p.log.String(), "before=2 now=6") {
		t.Errorf("said:\n%s", p.log)
	}
	p.send(1, topic, "k", "v")
	if failed := p.acks.wait(t, 2); len(failed) > 0 {
		t.Error(failed)
	}
}

// Another topic of the name is no change of this one: its keys never were anywhere else.
func TestTopicMadeAgainWithOtherPartitions(t *testing.T) {
	k := startFake(t)
	k.create(t, "t", 2, nil)
	p := start(t, k, nil)
	p.send(0, "t", "k", "v")
	p.acks.wait(t, 1)
	if _, err := k.admin.DeleteTopic(t.Context(), "t"); err != nil {
		t.Fatal(err)
	}
	k.create(t, "t", 6, nil)
	p.topics.wantAll()
	p.log.await(t, "kafka client replaced")
	p.send(1, "t", "k", "v")
	p.expectRisk(partitionsChanged, 0, 0)
}
