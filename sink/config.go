package sink

import (
	"fmt"
	"net"
	"strconv"
	"time"
)

// Config is what an operator can set about Kafka.
type Config struct {
	Brokers                []string `env:"KAFKA_BROKERS,required,notEmpty" doc:"Brokers to ask first, as host:port with commas between them."`
	TLS                    TLSConfig
	SASL                   SASLConfig
	ClientID               string        `env:"KAFKA_CLIENT_ID" envDefault:"walrelay" doc:"Client id in the brokers' logs, quotas and metrics."`
	Compression            string        `env:"KAFKA_COMPRESSION" envDefault:"snappy" doc:"Compression of record batches: none, gzip, snappy, lz4 or zstd."`
	Linger                 time.Duration `env:"KAFKA_LINGER" envDefault:"5ms" doc:"How long a record of a backlog may wait for others to share its batch, 0s to 1s. What was committed just now is sent at once."`
	MaxMessageBytes        int32         `env:"KAFKA_MAX_MESSAGE_BYTES" envDefault:"1000012" doc:"Largest record batch in bytes before compression, 1024 to 67108864; a row that does not fit into a batch of its own cannot be published. A topic's smaller max.message.bytes goes first."`
	TopicCreate            bool          `env:"KAFKA_TOPIC_CREATE" envDefault:"true" doc:"Create topics that do not exist."`
	TopicPartitions        int32         `env:"KAFKA_TOPIC_PARTITIONS" envDefault:"-1" doc:"Partitions of a topic that is created; -1 is the broker's default."`
	TopicReplicationFactor int16         `env:"KAFKA_TOPIC_REPLICATION_FACTOR" envDefault:"-1" doc:"Replication factor of a topic that is created; -1 is the broker's default."`
	TopicConfig            TopicConfig   `env:"KAFKA_TOPIC_CONFIG" doc:"Settings of a topic that is created, as retention.ms=604800000,cleanup.policy=compact,delete; the broker's defaults otherwise."`
	UnknownTopicWait       time.Duration `env:"KAFKA_UNKNOWN_TOPIC_WAIT" envDefault:"1m" doc:"How long a topic that is missing or refused is waited for before its rows count as unpublishable, 0s to 1h."`
}

// Bounds of KAFKA_MAX_MESSAGE_BYTES. A batch is held in memory as rows, once more while its request
// is written, and once more compressed; more than 64 MiB does not go with a relay of 64 MiB.
const (
	minMessageBytes = 1 << 10
	maxMessageBytes = 64 << 20
)

// Validate reports every setting that cannot work, by the name of its variable.
func (c Config) Validate() []error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	for _, broker := range c.Brokers {
		if err := checkBroker(broker); err != nil {
			bad("KAFKA_BROKERS: %q: %v", broker, err)
		}
	}
	errs = append(errs, c.TLS.Validate()...)
	errs = append(errs, c.SASL.Validate()...)
	if _, err := parseCodec(c.Compression); err != nil {
		bad("KAFKA_COMPRESSION: %v", err)
	}
	if c.Linger < 0 || c.Linger > time.Second {
		bad("KAFKA_LINGER: %v is out of range: 0s to 1s", c.Linger)
	}
	if c.MaxMessageBytes < minMessageBytes || c.MaxMessageBytes > maxMessageBytes {
		bad("KAFKA_MAX_MESSAGE_BYTES: %d is out of range: %d to %d", c.MaxMessageBytes, minMessageBytes, maxMessageBytes)
	}
	if c.TopicPartitions != -1 && c.TopicPartitions < 1 {
		bad("KAFKA_TOPIC_PARTITIONS: %d is out of range: -1 (the broker's default), or 1 and more", c.TopicPartitions)
	}
	if c.TopicReplicationFactor != -1 && c.TopicReplicationFactor < 1 {
		bad("KAFKA_TOPIC_REPLICATION_FACTOR: %d is out of range: -1 (the broker's default), or 1 and more", c.TopicReplicationFactor)
	}
	errs = append(errs, c.TopicConfig.validate(c.TopicReplicationFactor)...)
	if c.UnknownTopicWait < 0 || c.UnknownTopicWait > time.Hour {
		bad("KAFKA_UNKNOWN_TOPIC_WAIT: %v is out of range: 0s to 1h", c.UnknownTopicWait)
	}
	return errs
}

// Warnings are about settings that work, and that their owner may not have meant.
func (c Config) Warnings() []string { return c.SASL.warnings(c.TLS.Enabled) }

func checkBroker(addr string) error {
	host, port, err := net.SplitHostPort(addr)
	if err != nil || host == "" {
		return fmt.Errorf("not an address: write host:port, for instance kafka-1:9092")
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return fmt.Errorf("%q is not a port: use 1 to 65535", port)
	}
	return nil
}
