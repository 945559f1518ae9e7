package localdev

import (
	"fmt"
	"net"
	"strconv"

	"github.com/twmb/franz-go/pkg/kfake"
)

// BrokerOptions are the choices for an embedded broker. The zero value is a broker in memory on a
// free port, with 3 partitions per topic, that creates topics only when a client asks it to.
type BrokerOptions struct {
	Port       int    // 0: a free one
	Partitions int    // of a topic whose creator does not say; 0: 3
	AutoCreate bool   // a metadata request may create a topic, as with auto.create.topics.enable
	DataDir    string // empty: in memory. A broker started again on the same folder has its topics and records
}

// Broker is one Kafka broker in this process, listening on 127.0.0.1. It is a protocol fake for
// demonstrations and tests, and dies with the process.
type Broker struct {
	cluster *kfake.Cluster
	port    int
}

// StartBroker starts a broker. It answers when StartBroker returns.
func StartBroker(opts BrokerOptions) (*Broker, error) {
	if opts.Partitions == 0 {
		opts.Partitions = 3
	}
	choices := []kfake.Opt{
		kfake.NumBrokers(1),
		kfake.Ports(opts.Port),
		kfake.DefaultNumPartitions(opts.Partitions),
		kfake.ClusterID("walrelay-local"),
	}
	if opts.AutoCreate {
		choices = append(choices, kfake.AllowAutoTopicCreation())
	}
	if opts.DataDir != "" {
		choices = append(choices, kfake.DataDir(opts.DataDir))
	}
	cluster, err := kfake.NewCluster(choices...)
	if err != nil {
		return nil, fmt.Errorf("start the embedded broker: %w", err)
	}
	_, port, err := net.SplitHostPort(cluster.ListenAddrs()[0])
	if err != nil {
		cluster.Close()
		return nil, fmt.Errorf("start the embedded broker: read its address: %w", err)
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		cluster.Close()
		return nil, fmt.Errorf("start the embedded broker: read its port: %w", err)
	}
	return &Broker{cluster: cluster, port: number}, nil
}

// Addr is host:port, as KAFKA_BROKERS takes it.
func (b *Broker) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(b.port)) }

// Port is the port that it listens on.
func (b *Broker) Port() int { return b.port }

// Cluster is the fake itself, for tests that inject faults.
func (b *Broker) Cluster() *kfake.Cluster { return b.cluster }

// Close ends the broker and its connections.
func (b *Broker) Close() { b.cluster.Close() }
