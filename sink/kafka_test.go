package sink

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"walrelay/router"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for an event. It is never waited out by a test that passes.
const patience = 60 * time.Second

// kafka is the broker of a test: kfake, or the one of KAFKA_BROKERS for what a real one can show.
type kafka struct {
	brokers []string
	fake    *kfake.Cluster // nil for a real broker
	admin   *kadm.Client
	client  *kgo.Client
}

func startFake(t testing.TB, opts ...kfake.Opt) *kafka {
	t.Helper()
	cluster, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(1), kfake.DefaultNumPartitions(3)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	return connect(t, cluster, cluster.ListenAddrs())
}

// anyKafka is the broker of KAFKA_BROKERS if that is set, else kfake.
func anyKafka(t testing.TB) *kafka {
	if brokers := os.Getenv("KAFKA_BROKERS"); brokers != "" {
		return connect(t, nil, strings.Split(brokers, ","))
	}
	return startFake(t)
}

func connect(t testing.TB, cluster *kfake.Cluster, brokers []string) *kafka {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.MetadataMinAge(50*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return &kafka{brokers: brokers, fake: cluster, admin: kadm.NewClient(client), client: client}
}

// name is a topic of this test alone.
func name(t testing.TB, suffix string) string {
	clean := strings.NewReplacer("/", "-", " ", "-", "=", "-").Replace(t.Name())
	return fmt.Sprintf("%s.%s.%d", clean, suffix, time.Now().UnixNano())
}

func (k *kafka) create(t testing.TB, topic string, partitions int32, configs map[string]string) {
	t.Helper()
	values := make(map[string]*string)
	for key, value := range configs {
		values[key] = &value
	}
	resp, err := k.admin.CreateTopic(t.Context(), partitions, 1, values, topic)
	if err = errors.Join(err, resp.Err); err != nil {
		t.Fatal(err)
	}
}

func (k *kafka) delete(t testing.TB, topic string) {
	t.Helper()
	resp, err := k.admin.DeleteTopic(t.Context(), topic)
	if err = errors.Join(err, resp.Err); err != nil {
		t.Fatal(err)
	}
}

// setLimit changes a topic's max.message.bytes.
func (k *kafka) setLimit(t testing.TB, topic string, limit int) {
	t.Helper()
	k.set(t, topic, "max.message.bytes", fmt.Sprint(limit))
}

func (k *kafka) set(t testing.TB, topic, name, value string) {
	t.Helper()
	resp, err := k.admin.AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: name, Value: &value}}, topic)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := resp.On(topic, nil); err != nil {
		t.Fatal(err)
	}
	// A broker learns of it from the controller, a moment after that has answered.
	for deadline := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		configs, err := k.admin.DescribeTopicConfigs(t.Context(), topic)
		if err != nil {
			t.Fatal(err)
		}
		if slices.ContainsFunc(configs[0].Configs, func(c kadm.Config) bool { return c.Key == name && c.MaybeValue() == value }) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("topic %s never has %s=%s", topic, name, value)
		}
	}
}

// read returns the first n records of the topic, by partition, in the order of their offsets.
func (k *kafka) read(t testing.TB, topic string, n int) map[int32][]*kgo.Record {
	t.Helper()
	consumer, err := kgo.NewClient(kgo.SeedBrokers(k.brokers...), kgo.ConsumeTopics(topic), kgo.MetadataMinAge(50*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer consumer.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	got := make(map[int32][]*kgo.Record)
	for seen := 0; seen < n; {
		fetches := consumer.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			t.Fatalf("after %d of %d records: %v", seen, n, err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			got[r.Partition] = append(got[r.Partition], r)
			seen++
		})
	}
	return got
}

// end is the number of records that the topic was ever given.
func (k *kafka) end(t testing.TB, topic string) int64 {
	t.Helper()
	offsets, err := k.admin.ListEndOffsets(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	var n int64
	offsets.Each(func(o kadm.ListedOffset) { n += o.Offset })
	return n
}

// acks is an Acker that keeps what it is told.
type acks struct {
	mu    sync.Mutex
	err   map[uint64]error
	order []uint64
	twice []uint64
	moved chan struct{}
}

func newAcks() *acks {
	return &acks{err: make(map[uint64]error), moved: make(chan struct{}, 1)}
}

func (a *acks) Acked(token uint64, err error) {
	a.mu.Lock()
	if _, ok := a.err[token]; ok {
		a.twice = append(a.twice, token)
	}
	a.err[token] = err
	a.order = append(a.order, token)
	a.mu.Unlock()
	nudge(a.moved)
}

// wait waits until n different tokens have been acked and returns the failed ones.
func (a *acks) wait(t testing.TB, n int) map[uint64]error {
	t.Helper()
	timeout := time.After(patience)
	for {
		a.mu.Lock()
		got := len(a.err)
		failed := make(map[uint64]error)
		for token, err := range a.err {
			if err != nil {
				failed[token] = err
			}
		}
		twice := slices.Clone(a.twice)
		a.mu.Unlock()
		if len(twice) > 0 {
			t.Fatalf("told twice of %v", twice)
		}
		if got >= n {
			return failed
		}
		select {
		case <-a.moved:
		case <-timeout:
			t.Fatalf("%d of %d records were acknowledged or failed", got, n)
		}
	}
}

// running is a producer with its Run.
type running struct {
	*Producer
	t    testing.TB
	log  *logged
	reg  *prometheus.Registry
	acks *acks
	done chan error
}

func start(t testing.TB, k *kafka, change func(*Config), opts ...kgo.Opt) *running {
	t.Helper()
	cfg := Config{
		Brokers: k.brokers, ClientID: "test", Compression: "snappy", MaxMessageBytes: 1000012,
		TopicCreate: true, TopicPartitions: -1, TopicReplicationFactor: -1, UnknownTopicWait: time.Minute,
	}
	if change != nil {
		change(&cfg)
	}
	r := &running{t: t, log: &logged{}, reg: prometheus.NewRegistry(), acks: newAcks(), done: make(chan error, 1)}
	var err error
	r.Producer, err = New(cfg, r.reg, slog.New(slog.NewTextHandler(r.log, nil)), opts...)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() { r.done <- r.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-r.done; err != nil && !t.Failed() {
			t.Errorf("run: %v", err)
		}
		now, cancel := context.WithCancel(context.Background())
		cancel()
		r.Close(now)
		if n := r.Outstanding(); n != 0 {
			t.Errorf("%d records are outstanding after Close", n)
		}
		if t.Failed() {
			t.Logf("log:\n%s", r.log)
		}
	})
	return r
}

// try produces and waits while the topic is pending.
func (r *running) try(token uint64, rec router.Record) error { return r.offer(r.acks, token, rec) }

func (r *running) offer(to Acker, token uint64, rec router.Record) error {
	timeout := time.After(patience)
	e := r.Acquire()
	e.Record = rec
	e.Record.Headers = slices.Clone(rec.Headers) // the entry clears them when it is done
	for {
		err := r.Produce(e, to, token)
		if !errors.Is(err, ErrPending) {
			if err != nil {
				r.Release(e)
			}
			return err
		}
		select {
		case <-r.Wake():
		case <-timeout:
			r.Release(e)
			return fmt.Errorf("topic %s is pending for ever", rec.Topic)
		}
	}
}

func (r *running) send(token uint64, topic, key, value string) {
	r.t.Helper()
	if err := r.try(token, router.Record{Topic: topic, Key: []byte(key), Value: []byte(value)}); err != nil {
		r.t.Fatal(err)
	}
}

// logged is the log of a producer.
type logged struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func (l *logged) count(msg string) int { return strings.Count(l.String(), `msg="`+msg+`"`) }

// await waits for a line of the log.
func (l *logged) await(t testing.TB, msg string) {
	t.Helper()
	for deadline := time.Now().Add(patience); l.count(msg) == 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%q was never logged", msg)
		}
	}
}
