package sink

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"walrelay/router"
)

// checkOrder holds that each key is on one partition, with its values 0, 1, 2 … in order, each once.
func checkOrder(t *testing.T, got map[int32][]*kgo.Record, keys, perKey int) {
	t.Helper()
	next := make(map[string]int)
	home := make(map[string]int32)
	for partition, records := range got {
		for _, r := range records {
			key := string(r.Key)
			if want := fmt.Sprint(next[key]); string(r.Value) != want {
				t.Fatalf("key %s: value %s where %s is due", key, r.Value, want)
			}
			next[key]++
			if at, ok := home[key]; ok && at != partition {
				t.Fatalf("key %s is on partitions %d and %d", key, at, partition)
			}
			home[key] = partition
		}
	}
	for i := range keys {
		if key := fmt.Sprint("k", i); next[key] != perKey {
			t.Fatalf("key %s: %d of %d records", key, next[key], perKey)
		}
	}
}

func TestOrderOfAKey(t *testing.T) {
	k := anyKafka(t)
	p := start(t, k, nil)
	topic := name(t, "order")
	const keys, perKey = 20, 200
	token := uint64(0)
	for n := range perKey {
		for i := range keys {
			p.send(token, topic, fmt.Sprint("k", i), fmt.Sprint(n))
			token++
		}
	}
	if failed := p.acks.wait(t, keys*perKey); len(failed) > 0 {
		t.Fatalf("failed: %v", failed)
	}
	checkOrder(t, k.read(t, topic, keys*perKey), keys, perKey)
	if n := p.log.count("topic created"); n != 1 {
		t.Errorf("topic created: logged %d times", n)
	}
}

// Records that linger share a batch, unless they are hurried.
func TestHurry(t *testing.T) {
	sizes := make(batches, 1)
	k := startFake(t, kfake.DefaultNumPartitions(1))
	p := start(t, k, func(cfg *Config) { cfg.Linger = time.Second }, kgo.WithHooks(sizes), kgo.ProducerLinger(time.Minute))
	p.send(0, "one", "k", "v")
	for p.Outstanding() > 0 { // a topic that the client does not know yet cannot be hurried
		p.Hurry()
		time.Sleep(time.Millisecond)
	}
	<-sizes
	token := uint64(1)
	for _, want := range []int{2, 1, 3} {
		for range want {
			p.send(token, "one", "k", "v")
			token++
		}
		p.Hurry()
		if got := <-sizes; got != want {
			t.Errorf("a batch of %d records; want %d", got, want)
		}
	}
}

// batches tells how many records each batch has that is written.
type batches chan int

func (b batches) OnProduceBatchWritten(_ kgo.BrokerMetadata, _ string, _ int32, m kgo.ProduceBatchMetrics) {
	b <- m.NumRecords
}

// Promises of one partition come in its order, which is what the tracker's prefix lives from.
func TestAcksComeInTheOrderOfThePartition(t *testing.T) {
	k := startFake(t, kfake.DefaultNumPartitions(1))
	p := start(t, k, nil)
	const n = 5000
	for token := range uint64(n) {
		p.send(token, "one", "k", "v")
	}
	p.acks.wait(t, n)
	for i, token := range p.acks.order {
		if token != uint64(i) {
			t.Fatalf("ack %d is of token %d", i, token)
		}
	}
}

func TestRecordArrivesAsItWas(t *testing.T) {
	k := anyKafka(t)
	p := start(t, k, nil)
	topic := name(t, "faithful")
	long := strings.Repeat("x", 200_000)
	records := []router.Record{
		{Key: []byte("k"), Value: []byte("v"), Headers: []router.Header{{Key: "a", Value: []byte("1")}, {Key: "a", Value: nil}, {Key: "", Value: []byte{}}}},
		{Key: []byte("k"), Value: nil},
		{Key: []byte("k"), Value: []byte{}},
		{Key: []byte{}, Value: []byte(long)},
		{Key: nil, Value: []byte("\x00\xff")},
	}
	for i, rec := range records {
		rec.Topic = topic
		if err := p.try(uint64(i), rec); err != nil {
			t.Fatal(err)
		}
		p.acks.wait(t, i+1) // one batch each, so that the order across partitions is known
	}
	seen := 0
	for _, part := range k.read(t, topic, len(records)) {
		for _, r := range part {
			before := seen
			for _, want := range records {
				if same(r, &want) {
					seen++
				}
			}
			if seen == before {
				t.Errorf("key %#v, value of %d bytes (NULL %v), headers %#v", r.Key, len(r.Value), r.Value == nil, r.Headers)
			}
			if age := p.ages.slots[0].since.Load(); r.Timestamp.UnixMilli() < age/1e6-1 {
				t.Errorf("timestamp %v is before the test began", r.Timestamp)
			}
		}
	}
	if seen != len(records) {
		t.Errorf("%d of %d records arrived as they were", seen, len(records))
	}
}

// same compares nil and empty as different, as Kafka does.
func same(got *kgo.Record, want *router.Record) bool {
	equal := func(a, b []byte) bool { return string(a) == string(b) && (a == nil) == (b == nil) }
	if !equal(got.Key, want.Key) || !equal(got.Value, want.Value) || len(got.Headers) != len(want.Headers) {
		return false
	}
	for i, h := range got.Headers {
		if h.Key != want.Headers[i].Key || !equal(h.Value, want.Headers[i].Value) {
			return false
		}
	}
	return true
}

// What a promise brings is sorted the same whether kgo retried it or not, and what is retriable never
// reaches a promise.
func TestClassOfPromises(t *testing.T) {
	for _, c := range []struct {
		err  *kerr.Error
		want Class
		none bool // kgo retries it itself; the record is acknowledged
	}{
		{err: kerr.UnknownServerError, want: Session},
		{err: kerr.InvalidTimestamp, want: Session},
		{err: kerr.MessageTooLarge, want: Row},
		{err: kerr.InvalidRecord, want: Row},
		{err: kerr.CorruptMessage, want: Row},
		{err: kerr.PolicyViolation, want: Row},
		{err: kerr.RecordListTooLarge, want: Row},
		{err: kerr.TopicAuthorizationFailed, want: Topic},
		{err: kerr.ClusterAuthorizationFailed, want: Fatal},
		{err: kerr.NotEnoughReplicas, none: true},
		{err: kerr.NotEnoughReplicasAfterAppend, none: true},
		{err: kerr.NotLeaderForPartition, none: true},
		{err: kerr.UnknownTopicOrPartition, none: true},
		{err: kerr.RequestTimedOut, none: true},
		{err: kerr.KafkaStorageError, none: true},
		{err: kerr.OutOfOrderSequenceNumber, none: true},
	} {
		t.Run(c.err.Message, func(t *testing.T) {
			t.Parallel()
			k := startFake(t)
			p := start(t, k, nil)
			p.send(0, "t", "k", "before")
			p.acks.wait(t, 1)
			k.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "t", Err: c.err})
			p.send(1, "t", "k", "at")
			failed := p.acks.wait(t, 2)
			if c.none {
				if len(failed) > 0 {
					t.Fatalf("failed: %v", failed)
				}
			} else if got := Classify(failed[1]); failed[1] == nil || got != c.want {
				t.Fatalf("%v: %v, want %v", failed[1], got, c.want)
			}
			// The client goes on in any case.
			p.send(2, "t", "k", "after")
			if failed := p.acks.wait(t, 3); failed[2] != nil {
				t.Fatalf("after: %v", failed[2])
			}
			if c.err == kerr.OutOfOrderSequenceNumber {
				p.log.await(t, "kafka does not remember records that it acknowledged: check for unclean leader elections and lost disks")
			}
			if c.none {
				if n := k.end(t, "t"); n != 3 {
					t.Errorf("%d records on the topic, want 3", n)
				}
			}
		})
	}
}

// A batch fails as a whole, and with it everything that was buffered behind it on its partition.
func TestRejectedBatchFailsWhatIsBehindIt(t *testing.T) {
	k := startFake(t, kfake.DefaultNumPartitions(1))
	p := start(t, k, nil)
	p.send(0, "t", "k", "0")
	p.acks.wait(t, 1)
	k.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.InvalidRecord})
	const n = 200
	token := uint64(1)
	for ; token < n; token++ {
		e := p.Acquire()
		e.Record = router.Record{Topic: "t", Key: []byte("k"), Value: []byte("v")}
		if err := p.Produce(e, p.acks, token); err != nil {
			p.Release(e) // pending: the limits are read anew after a rejection
			break
		}
	}
	failed := p.acks.wait(t, int(token))
	if len(failed) == 0 {
		t.Fatal("nothing failed")
	}
	for token, err := range failed {
		if Classify(err) != Row {
			t.Errorf("token %d: %v", token, err)
		}
	}
}

func TestTooLargeIsFoundBeforeItIsSent(t *testing.T) {
	k := anyKafka(t)
	p := start(t, k, func(c *Config) { c.MaxMessageBytes = 500_000 })
	small := name(t, "small")
	k.create(t, small, 1, map[string]string{"max.message.bytes": "10000"})
	fits := func(limit int) router.Record {
		rec := router.Record{Topic: small, Key: []byte("k"), Value: make([]byte, limit-100)}
		rec.Value = make([]byte, len(rec.Value)+limit-batchSize(&rec))
		if size := batchSize(&rec); size != limit {
			t.Fatalf("size %d, want %d", size, limit)
		}
		return rec
	}
	over := fits(10000)
	over.Value = append(over.Value, 0)
	err := p.try(0, over)
	row, ok := errors.AsType[*RowError](err)
	if !ok || row.Reason != TooLarge || !strings.Contains(err.Error(), "max.message.bytes=10001") {
		t.Fatalf("got %v", err)
	}
	// Incompressible or not, alone or with others: what fits is taken.
	for token := range uint64(20) {
		if err := p.try(token, fits(10000)); err != nil {
			t.Fatal(err)
		}
	}
	if failed := p.acks.wait(t, 20); len(failed) > 0 {
		t.Fatal(failed)
	}
	large := name(t, "large")
	over = router.Record{Topic: large, Key: []byte("k"), Value: make([]byte, 500_000)}
	row, ok = errors.AsType[*RowError](p.try(20, over))
	if !ok || row.Reason != TooLarge || !strings.Contains(row.Error(), "KAFKA_MAX_MESSAGE_BYTES") {
		t.Fatalf("got %v", row)
	}
}

// Many small records make batches that the topic takes too, not only kgo's own limit.
func TestBatchesKeepToTheTopicsLimit(t *testing.T) {
	k := anyKafka(t)
	p := start(t, k, func(c *Config) { c.Compression = "none" })
	topic := name(t, "batches")
	k.create(t, topic, 1, map[string]string{"max.message.bytes": "5000"})
	const n = 2000
	for token := range uint64(n) {
		p.send(token, topic, "k", strings.Repeat("v", 100))
	}
	if failed := p.acks.wait(t, n); len(failed) > 0 {
		t.Fatalf("%d failed", len(failed))
	}
}

func TestNoKeyOnACompactedTopic(t *testing.T) {
	k := anyKafka(t)
	p := start(t, k, nil)
	topic := name(t, "compacted")
	k.create(t, topic, 1, map[string]string{"cleanup.policy": "compact"})
	err := p.try(0, router.Record{Topic: topic, Value: []byte("v")})
	if row, ok := errors.AsType[*RowError](err); !ok || row.Reason != NoKey {
		t.Fatalf("got %v", err)
	}
	if err := p.try(0, router.Record{Topic: topic, Key: []byte{}, Value: []byte("v")}); err != nil {
		t.Fatal(err)
	}
	if failed := p.acks.wait(t, 1); len(failed) > 0 {
		t.Fatal(failed)
	}
}

func TestCloseTellsEveryAcker(t *testing.T) {
	k := startFake(t)
	p := start(t, k, nil)
	p.send(0, "t", "k", "0")
	p.acks.wait(t, 1)
	k.fake.Close()
	const n = 100
	for token := uint64(1); token < n; token++ {
		p.send(token, "t", "k", "v")
	}
	now, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.Flush(now); !errors.Is(err, context.Canceled) {
		t.Errorf("flush: %v", err)
	}
	p.Close(now)
	for token, err := range p.acks.wait(t, n) {
		if Classify(err) != Session {
			t.Errorf("token %d: %v", token, err)
		}
	}
	if p.Outstanding() != 0 {
		t.Errorf("%d outstanding", p.Outstanding())
	}
}

// New connects to nothing, and says everything that is wrong at once.
func TestNewChecksItsConfiguration(t *testing.T) {
	_, err := New(Config{
		Brokers: []string{"kafka", ":9092", "kafka:0", "kafka:http"}, Compression: "brotli", Linger: -1, MaxMessageBytes: 10,
		TopicPartitions: 0, TopicReplicationFactor: 0, UnknownTopicWait: -1,
	}, nil, nil)
	if err == nil {
		t.Fatal("accepted")
	}
	for _, name := range []string{"KAFKA_BROKERS", "KAFKA_COMPRESSION", "KAFKA_LINGER", "KAFKA_MAX_MESSAGE_BYTES",
		"KAFKA_TOPIC_PARTITIONS", "KAFKA_TOPIC_REPLICATION_FACTOR", "KAFKA_UNKNOWN_TOPIC_WAIT"} {
		if !strings.Contains(err.Error(), name+": ") {
			t.Errorf("nothing about %s in: %v", name, err)
		}
	}
	if n := strings.Count(err.Error(), "KAFKA_BROKERS"); n != 4 {
		t.Errorf("%d brokers are wrong, %d were named", 4, n)
	}
}
