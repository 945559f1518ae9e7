package sink

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	requestTimeout = 10 * time.Second // of one request, kgo's retries on other brokers included
	createTimeout  = 20 * time.Second // what the controller is given; Kafka's own default is 30 s

	lookAgainSoon  = 10 * time.Millisecond // for what is on its way, such as a leader; doubled each time up to lookAgainLater
	lookAgainLater = time.Second           // for what somebody has to mend
	retryGivenUp   = 15 * time.Second      // between two tries of a topic that was given up
	newTopicWait   = 10 * time.Second      // until every partition of a new topic has a leader
	configsTries   = 3                     // failed requests in a row before a topic's own limits are done without
)

// lookup asks Kafka for the topics and leaves what it found in topic.found: nil means to look again
// at topic.due. An error means that Kafka did not answer.
func (ts *topics) lookup(ctx context.Context, due map[string]*topic) error {
	req := kmsg.NewPtrMetadataRequest()
	req.AllowAutoTopicCreation = false // a broker that creates topics by itself would do it with its defaults
	for name := range due {
		topic := kmsg.NewMetadataRequestTopic()
		topic.Topic = kmsg.StringPtr(name)
		req.Topics = append(req.Topics, topic)
	}
	attempt, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	resp, err := req.RequestWith(attempt, ts.p.client.Load())
	if err != nil {
		return fmt.Errorf("look up topics: %w", err)
	}
	now := time.Now()
	for _, t := range due {
		t.found, t.due = nil, now.Add(lookAgainLater)
	}
	var create, there []*topic
	for i := range resp.Topics {
		r := &resp.Topics[i]
		if r.Topic == nil || due[*r.Topic] == nil {
			continue
		}
		t := due[*r.Topic]
		switch err := kerr.ErrorForCode(r.ErrorCode); {
		case err == nil && len(r.Partitions) > 0:
			if t.missing && !allLed(r) && now.Sub(t.first) < newTopicWait {
				ts.notReady(t, kerr.LeaderNotAvailable)
				continue
			}
			t.found = &facts{id: r.TopicID, limit: ts.p.cfg.MaxMessageBytes, read: now, partitions: len(r.Partitions), replicas: len(r.Partitions[0].Replicas)}
			there = append(there, t)
		case err == nil:
			ts.notReady(t, kerr.LeaderNotAvailable)
		case errors.Is(err, kerr.UnknownTopicOrPartition):
			t.missing = true
			if !ts.p.cfg.TopicCreate {
				ts.refuse(t, err, fmt.Sprintf("create the topic (kafka-topics.sh --bootstrap-server %s --create --topic %s), or set KAFKA_TOPIC_CREATE=true",
					strings.Join(ts.p.cfg.Brokers, ","), t.name))
				continue
			}
			create = append(create, t)
		case errors.Is(err, kerr.InvalidTopicException):
			ts.condemn(t, err)
		case errors.Is(err, kerr.TopicAuthorizationFailed):
			ts.refuse(t, err, "allow the relay's user Describe and Write on the topic, and Create where it is missing")
		case kerr.IsRetriable(err):
			ts.notReady(t, err)
		default:
			ts.refuse(t, err, "see the broker's log")
		}
	}
	if err := ts.create(ctx, create); err != nil {
		return err
	}
	if err := ts.configs(ctx, due, there); err != nil {
		return err
	}
	for _, t := range there {
		if t.found == nil {
			continue
		}
		ts.advise(t, len(resp.Brokers))
		if r := t.refused.Load(); r != nil {
			ts.retry(t, r)
		}
	}
	return nil
}

// retry decides about a topic that is there and whose records the broker has refused. It may have
// changed its mind, which only a record can show: so the topic is opened again until it is given up,
// and now and then after that.
func (ts *topics) retry(t *topic, r *refusal) {
	found := t.found
	ts.refuse(t, r.err, remedy(r.err))
	if t.found == nil {
		t.found = found
		return
	}
	if f := t.facts.Load(); f != nil && f.err != nil && time.Since(f.read) > retryGivenUp {
		t.found = found
	}
}

func allLed(topic *kmsg.MetadataResponseTopic) bool {
	for i := range topic.Partitions {
		if topic.Partitions[i].Leader < 0 || topic.Partitions[i].ErrorCode != 0 {
			return false
		}
	}
	return true
}

func remedy(refused error) string {
	switch {
	case errors.Is(refused, kerr.TopicAuthorizationFailed):
		return "allow the relay's user Write on the topic"
	case errors.Is(refused, kerr.UnsupportedForMessageFormat):
		return "raise the topic's message.format.version to 0.11.0 or later"
	}
	return "see the broker's log"
}

// refuse notes that a topic is missing or refused, says so when that is new, and gives the topic up
// for its rows when that has lasted for too long. It is looked up on and on in any case.
func (ts *topics) refuse(t *topic, err error, remedy string) {
	now, wait := time.Now(), ts.p.cfg.UnknownTopicWait
	if t.since.IsZero() {
		t.since = now
	}
	if ts.news(t, err) {
		ts.p.log.Warn("topic cannot be written to", "topic", t.name, "error", err, "remedy", remedy,
			"waits", "the topic's events, and every event behind them",
			"wait", max(wait-now.Sub(t.since), 0).Round(time.Millisecond))
	}
	t.found, t.due = nil, now.Add(lookAgainLater)
	left := wait - now.Sub(t.since)
	if left <= 0 {
		t.found = &facts{read: now, err: &TopicError{t.name, remedy, err}}
		return
	}
	if left < lookAgainLater {
		t.due = now.Add(left)
	}
}

// notReady notes that a topic cannot be used yet, although nobody has to allow or make anything: it has
// no leader, or a broker is busy. It is waited for as long as it takes, like a broker that is away.
func (ts *topics) notReady(t *topic, err error) {
	now := time.Now()
	t.found, t.due = nil, now.Add(min(lookAgainSoon<<min(t.tries, 10), lookAgainLater))
	t.tries++
	if now.Sub(t.first) >= newTopicWait && ts.news(t, err) {
		ts.p.log.Warn("topic is not ready", "topic", t.name, "error", err)
	}
}

// news reports whether Kafka's answer is another one than that which was logged last.
func (ts *topics) news(t *topic, err error) bool {
	was, _ := errors.AsType[*kerr.Error](t.said)
	is, _ := errors.AsType[*kerr.Error](err)
	if t.said != nil && was == is {
		return false
	}
	t.said = err
	return true
}

// mended notes that a topic can be written to.
func (ts *topics) mended(t *topic) {
	if t.refused.Load() != nil {
		return // it is only tried again
	}
	if t.said != nil {
		since := t.since
		if since.IsZero() {
			since = t.first
		}
		ts.p.log.Info("topic can be written to again", "topic", t.name, "after", time.Since(since).Round(time.Millisecond))
	}
	t.said, t.since = nil, time.Time{}
}

// condemn notes that Kafka will never accept the topic's name.
func (ts *topics) condemn(t *topic, err error) {
	t.found = &facts{read: time.Now(), err: &RowError{t.name, InvalidTopic,
		fmt.Errorf("kafka does not accept the name (%w): change the row's topic or ROUTER_TOPIC", err)}}
}

// create makes topics that do not exist, and leaves them to be looked up again.
func (ts *topics) create(ctx context.Context, missing []*topic) error {
	if len(missing) == 0 {
		return nil
	}
	cfg := &ts.p.cfg
	byName := make(map[string]*topic, len(missing))
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis = int32(createTimeout.Milliseconds())
	for _, t := range missing {
		topic := kmsg.NewCreateTopicsRequestTopic()
		topic.Topic, topic.NumPartitions, topic.ReplicationFactor = t.name, cfg.TopicPartitions, cfg.TopicReplicationFactor
		for _, c := range cfg.TopicConfig {
			config := kmsg.NewCreateTopicsRequestTopicConfig()
			config.Name, config.Value = c.Name, kmsg.StringPtr(c.Value)
			topic.Configs = append(topic.Configs, config)
		}
		req.Topics = append(req.Topics, topic)
		byName[t.name] = t
	}
	attempt, cancel := context.WithTimeout(ctx, createTimeout+requestTimeout)
	defer cancel()
	resp, err := req.RequestWith(attempt, ts.p.client.Load())
	if err != nil {
		return fmt.Errorf("create topics: %w", err)
	}
	for i := range resp.Topics {
		r := &resp.Topics[i]
		t := byName[r.Topic]
		if t == nil {
			continue
		}
		err := kerr.ErrorForCode(r.ErrorCode)
		detail := err
		if r.ErrorMessage != nil && *r.ErrorMessage != "" {
			detail = fmt.Errorf("create topic: %w (%s)", err, *r.ErrorMessage)
		}
		switch {
		case err == nil:
			ts.p.log.Info("topic created", "topic", t.name, "partitions", r.NumPartitions, "replication_factor", r.ReplicationFactor)
			ts.notReady(t, kerr.LeaderNotAvailable)
		case errors.Is(err, kerr.TopicAlreadyExists) || kerr.IsRetriable(err):
			ts.notReady(t, err) // somebody was faster, or the controller is busy
		case errors.Is(err, kerr.InvalidTopicException):
			ts.condemn(t, detail)
		case errors.Is(err, kerr.TopicAuthorizationFailed) || errors.Is(err, kerr.ClusterAuthorizationFailed):
			ts.refuse(t, detail, "create the topic, or allow the relay's user Create on it")
		case errors.Is(err, kerr.InvalidReplicationFactor):
			ts.refuse(t, detail, "set KAFKA_TOPIC_REPLICATION_FACTOR to no more than there are brokers, or create the topic")
		case errors.Is(err, kerr.InvalidPartitions):
			ts.refuse(t, detail, "set KAFKA_TOPIC_PARTITIONS, or create the topic")
		case errors.Is(err, kerr.InvalidConfig):
			ts.refuse(t, detail, "correct KAFKA_TOPIC_CONFIG, or create the topic")
		default:
			ts.refuse(t, detail, "create the topic")
		}
	}
	return nil
}

// configs reads what the topics limit. Without the permission to read it the relay's own limits hold.
func (ts *topics) configs(ctx context.Context, due map[string]*topic, there []*topic) error {
	if len(there) == 0 {
		return nil
	}
	req := kmsg.NewPtrDescribeConfigsRequest()
	for _, t := range there {
		resource := kmsg.NewDescribeConfigsRequestResource()
		resource.ResourceType = kmsg.ConfigResourceTypeTopic
		resource.ResourceName = t.name
		resource.ConfigNames = []string{"max.message.bytes", "cleanup.policy", "min.insync.replicas"}
		req.Resources = append(req.Resources, resource)
	}
	attempt, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	resp, err := req.RequestWith(attempt, ts.p.client.Load())
	if err != nil {
		ts.configsFailed++
		if ts.configsFailed < configsTries {
			return fmt.Errorf("read topic configs: %w", err)
		}
		ts.withoutConfigs(err)
		return nil
	}
	ts.configsFailed = 0
	for i := range resp.Resources {
		r := &resp.Resources[i]
		t := due[r.ResourceName]
		if t == nil || t.found == nil {
			continue
		}
		switch err := kerr.ErrorForCode(r.ErrorCode); {
		case err == nil:
			t.found.apply(r.Configs)
		case kerr.IsRetriable(err):
			ts.notReady(t, err) // the broker has not heard of the topic yet
		default:
			ts.withoutConfigs(err)
		}
	}
	return nil
}

func (f *facts) apply(configs []kmsg.DescribeConfigsResponseResourceConfig) {
	for _, c := range configs {
		if c.Value == nil {
			continue
		}
		switch c.Name {
		case "max.message.bytes":
			if n, err := strconv.ParseInt(*c.Value, 10, 32); err == nil {
				f.limit = max(min(f.limit, int32(n)), smallestBatch)
			}
		case "cleanup.policy":
			f.compacted = strings.Contains(*c.Value, "compact")
		case "min.insync.replicas":
			f.minInSync, _ = strconv.Atoi(*c.Value) // 0 where it is no number
		}
	}
}

// smallestBatch is the smallest limit that kgo takes. What is too large for a topic with a smaller one
// is left to the broker to refuse.
const smallestBatch = 512

func (ts *topics) withoutConfigs(err error) {
	if ts.configsRefused {
		return
	}
	ts.configsRefused = true
	ts.p.log.Warn("a topic's max.message.bytes and cleanup.policy cannot be read, so KAFKA_MAX_MESSAGE_BYTES alone decides: allow the relay's user DescribeConfigs on its topics",
		"error", err)
}
