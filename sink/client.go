package sink

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/plugin/kprom"
)

const (
	// kgo blocks in Produce above this. The relay's window is far below it, so Produce never blocks;
	// bytes are bounded by the relay alone.
	maxBuffered = 1 << 20

	// A request carries one batch for each partition. With kgo's limit of 100 MiB the whole window
	// could be copied into one request; a few batches at a time are as fast and save memory with rows of
	// 900 kB (10 MiB of 57 at a window of 8 MiB).
	requestBytes    = 2 << 20
	requestOverhead = 16 << 10 // header, topic name and client id; kgo needs some hundred bytes

	// How long kgo waits between two looks at the metadata. Its default of 5 s decides how long a
	// moved leader costs (10 s where this costs 0.5 s).
	metadataMinAge = 250 * time.Millisecond

	// How often a broker may answer "unknown topic" before the record fails. Right after a topic was
	// created brokers learn of it one by one; this allows some three seconds.
	unknownTopicRetries = 10

	// An outbox that is quiet for a minute must not pay for a new connection with its next event.
	// Below the ten minutes after which brokers close idle connections.
	connIdleTimeout = 5 * time.Minute
)

// newClient makes a client. Records have no time-out and are never given up by count: a record whose
// fate is unknown must be sent again and again, or be lost. Whoever waits is told by watch.
func (p *Producer) newClient() (*kgo.Client, error) {
	codec, err := parseCodec(p.cfg.Compression)
	if err != nil {
		return nil, err
	}
	opts := []kgo.Opt{
		kgo.SeedBrokers(p.cfg.Brokers...),
		kgo.ClientID(p.cfg.ClientID),
		kgo.SoftwareNameAndVersion("walrelay", "1"),
		kgo.WithLogger(newClientLog(p.log)),
		kgo.WithHooks(
			p.reach,
			kprom.NewMetrics("walrelay", kprom.Subsystem("kafka"), kprom.Registerer(p.reg)),
		),
		kgo.DisableClientMetrics(), // nobody asked for them, and Close would wait for the last push
		kgo.ConnIdleTimeout(connIdleTimeout),
		kgo.MetadataMinAge(metadataMinAge),
		kgo.RetryBackoffFn(backoff),
		kgo.BrokerMaxWriteBytes(max(requestBytes, p.cfg.MaxMessageBytes+requestOverhead)),

		kgo.RequiredAcks(kgo.AllISRAcks()), // and idempotent, which is kgo's default
		kgo.RecordPartitioner(partitioner()),
		kgo.ProducerBatchCompression(codec, kgo.NoCompression()),
		kgo.ProducerLinger(p.cfg.Linger),
		kgo.ProducerBatchMaxBytesFn(p.topics.batchLimit),
		kgo.MaxBufferedRecords(maxBuffered),
		kgo.UnknownTopicRetries(unknownTopicRetries),
		kgo.ProducerOnDataLossDetected(p.dataLoss),
	}
	opts = append(opts, p.connect...)
	client, err := kgo.NewClient(append(opts, p.opts...)...)
	if err != nil {
		return nil, fmt.Errorf("prepare the kafka client: %w", err)
	}
	return client, nil
}

// Connect is how a client gets to a broker, and in. Every client of a producer shares it, and so what
// was last read from files or got as a token.
func (c Config) Connect(log *slog.Logger) ([]kgo.Opt, error) {
	var opts []kgo.Opt
	if c.TLS.Enabled {
		certificates, err := newCertificates(c.TLS, log)
		if err != nil {
			return nil, err
		}
		opts = append(opts, kgo.Dialer(certificates.dial))
	}
	mechanism, err := c.SASL.mechanism(log)
	if err != nil {
		return nil, err
	}
	if mechanism != nil {
		opts = append(opts, kgo.SASL(mechanism))
	}
	return opts, nil
}

func parseCodec(name string) (kgo.CompressionCodec, error) {
	switch name {
	case "none":
		return kgo.NoCompression(), nil
	case "gzip":
		return kgo.GzipCompression(), nil
	case "snappy":
		return kgo.SnappyCompression(), nil
	case "lz4":
		return kgo.Lz4Compression(), nil
	case "zstd":
		return kgo.ZstdCompression(), nil
	}
	return kgo.CompressionCodec{}, fmt.Errorf("%q is unknown: use none, gzip, snappy, lz4 or zstd", name)
}

// partitioner puts a key on the partition that Java's default partitioner puts it on (murmur2), so
// that producers of either kind keep a key's order on one partition. Records without a key stick to
// a partition for 64 KiB.
func partitioner() kgo.Partitioner { return kgo.UniformBytesPartitioner(64<<10, true, true, nil) }

// backoff is 50 ms, doubled with each failure up to 1 s, with a fifth of jitter either way.
func backoff(failures int) time.Duration {
	d := min(50*time.Millisecond<<min(max(failures-1, 0), 5), time.Second)
	return time.Duration(float64(d) * (0.8 + 0.4*rand.Float64()))
}

// dataLoss is called when a broker does not know the batch before the one that it was sent. Mostly
// acknowledged records are gone, by an unclean leader election or a lost disk. kgo goes on with the
// records at hand under a new epoch, in order; what is gone, nothing here can bring back.
func (p *Producer) dataLoss(topic string, partition int32) {
	p.metrics.dataLoss.Add(1)
	p.log.Error("kafka does not remember records that it acknowledged: check for unclean leader elections and lost disks",
		"topic", topic, "partition", partition)
}

// replaceClient ends this client and starts another, once nothing is outstanding.
//
// kgo keeps the id and the batch limit of a topic for as long as it knows the topic. Purging a topic
// would make it forget them, but its sequence numbers too: the topic's next batch would be number 0
// of the same producer epoch again, which a broker that remembers such a batch acknowledges as a
// duplicate and does not write (seen on Kafka 4.4: four records, each followed by a purge, were all
// acknowledged at offset 0). A new client has a producer id of its own. Topics are deleted and made
// again, or their limits changed, rarely enough.
func (p *Producer) replaceClient(ctx context.Context, why string) error {
	p.draining.Store(true)
	defer p.draining.Store(false)
	for p.outstanding.Load() > 0 {
		select {
		case <-p.drained:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	p.client.Load().Close()
	client, err := p.newClient()
	if err != nil {
		return err
	}
	p.client.Store(client)
	p.metrics.replaced.Add(1)
	p.log.Info("kafka client replaced", "reason", why)
	return nil
}
