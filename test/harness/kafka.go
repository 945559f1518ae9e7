package harness

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"walrelay/test/harness/kraft"
)

// Cluster is one Kafka broker for tests.
type Cluster struct {
	What   string // what answers: "Apache Kafka 4.4.0", "kfake"
	Real   bool   // not kfake
	Proxy  *Proxy // between clients and the broker, where ViaProxy was asked for; else nil
	addr   string // host:port list, as KAFKA_BROKERS takes it
	direct string // host:port behind the proxy, where there is one
	broker broker // how to stop it and start it again
	owned  bool   // by this one test
}

// broker is a Kafka that the harness can end and have back with its data on the same port. Stop is
// orderly, Kill is a crash, Close is the end and removes the data. All are bounded to two minutes.
type broker interface {
	Start(ctx context.Context) error
	Stop() error
	Kill() error
	Close() error
}

// KafkaOption is a choice for OwnKafka.
type KafkaOption func(*kafkaChoice)

type kafkaChoice struct {
	proxied bool
	more    []kraft.Option
}

// ViaProxy puts a Proxy in front of the broker, which is what the broker's metadata names: clients
// cannot get around it.
func ViaProxy() KafkaOption { return func(c *kafkaChoice) { c.proxied = true } }

// Listener gives the broker one more way in. Only Apache Kafka on this machine has it: elsewhere the
// test is skipped, and listed as not run.
func Listener(l kraft.Listener) KafkaOption {
	return func(c *kafkaChoice) { c.more = append(c.more, kraft.With(l)) }
}

// BrokerSetting adds a line to the broker's server.properties, where Listener would work.
func BrokerSetting(name, value string) KafkaOption {
	return func(c *kafkaChoice) { c.more = append(c.more, kraft.Setting(name, value)) }
}

// JavaProperty sets a system property of the broker's JVM, where Listener would work.
func JavaProperty(name, value string) KafkaOption {
	return func(c *kafkaChoice) { c.more = append(c.more, kraft.Property(name, value)) }
}

// Kafka is a broker that tests share: the one of KAFKA_BROKERS, else Apache Kafka where Java, or a
// container engine, can run it, else kfake, which is noted in the list of what could not run.
// It lives until the test binary ends.
func Kafka(t testing.TB) *Cluster {
	t.Helper()
	ctx := setUp(t)
	if addr := os.Getenv(EnvBrokers); addr != "" {
		what := os.Getenv(EnvKafka)
		if what == "" {
			what = "the broker of " + EnvBrokers
		}
		return &Cluster{What: what, Real: what != whatFake, addr: addr}
	}
	shared.Lock()
	defer shared.Unlock()
	if shared.cluster == nil {
		cluster, why, err := StartKafka(ctx, mayFetch(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if !cluster.Real {
			Note("tests with Apache Kafka", "ran with kfake: "+why)
		}
		shared.cluster = cluster
	}
	return shared.cluster
}

// OwnKafka is a broker for this test alone, which may stop and kill it.
func OwnKafka(t testing.TB, opts ...KafkaOption) *Cluster {
	t.Helper()
	ctx := setUp(t)
	var c kafkaChoice
	for _, o := range opts {
		o(&c)
	}
	var proxy *Proxy
	advertised := ""
	if c.proxied {
		proxy = NewProxy(t)
		advertised = proxy.Addr()
	}
	cluster, why, err := startKafka(ctx, mayFetch(), nil, advertised, c.more...)
	if err != nil {
		t.Fatal(err)
	}
	if _, local := cluster.broker.(*kraft.Broker); len(c.more) > 0 && !local {
		cluster.broker.Close()
		Skip(t, t.Name()+" with listeners of its own", why)
	}
	if !cluster.Real {
		if c.proxied {
			cluster.broker.Close()
			Skip(t, t.Name()+" with a proxy before Apache Kafka", why)
		}
		Note(t.Name()+" with Apache Kafka", "ran with kfake: "+why)
	}
	cluster.owned = true
	if proxy != nil {
		proxy.To(cluster.addr)
		cluster.Proxy, cluster.direct, cluster.addr = proxy, cluster.addr, advertised
	}
	t.Cleanup(func() {
		if t.Failed() && cluster.LogPath() != "" {
			t.Logf("log of %s kept: %s", cluster.What, KeepLog(cluster.LogPath(), t.Name()+"-kafka"))
		}
		if err := cluster.broker.Close(); err != nil {
			t.Error(err)
		}
	})
	return cluster
}

// StartKafka starts the best broker that this machine can run; why says what stood in the way of a
// better one. The caller ends it with Close.
func StartKafka(ctx context.Context, fetch bool, progress func(string)) (cluster *Cluster, why string, err error) {
	return startKafka(ctx, fetch, progress, "")
}

func startKafka(ctx context.Context, fetch bool, progress func(string), advertised string, more ...kraft.Option) (*Cluster, string, error) {
	install, err := kraft.Find(ctx, localConfig(), fetch, progress)
	if err == nil {
		b, err := kraft.New(ctx, install, advertised, more...)
		if err != nil {
			return nil, "", err
		}
		return &Cluster{What: "Apache Kafka " + kraft.Version, Real: true, addr: b.Direct(), broker: b}, "", nil
	}
	if !errors.Is(err, kraft.ErrUnavailable) {
		return nil, "", err
	}
	why := err.Error()
	engine, err := kraft.FindEngine(ctx, fetch)
	if err == nil {
		b, err := kraft.NewContainer(ctx, engine, advertised)
		if err == nil {
			return &Cluster{What: "Apache Kafka " + kraft.ImageVersion + " in a container", Real: true, addr: b.Direct(), broker: b}, why, nil
		}
		why += "; " + err.Error()
	} else {
		why += "; " + err.Error()
	}
	b, err := newFake()
	if err != nil {
		return nil, "", err
	}
	return &Cluster{What: whatFake, addr: b.addr(), broker: b}, why, nil
}

// Brokers is host:port, as KAFKA_BROKERS takes it.
func (c *Cluster) Brokers() string { return c.addr }

// Listener is host:port of a listener that Listener gave the broker.
func (c *Cluster) Listener(t testing.TB, name string) string {
	t.Helper()
	addr, _ := c.listener(t, name)
	return addr
}

// Behind is where that listener listens, for a proxy whose address is what clients are given.
func (c *Cluster) Behind(t testing.TB, name string) string {
	t.Helper()
	_, direct := c.listener(t, name)
	return direct
}

func (c *Cluster) listener(t testing.TB, name string) (addr, direct string) {
	t.Helper()
	if b, ok := c.broker.(*kraft.Broker); ok {
		if addr, direct, ok = b.Listener(name); ok {
			return addr, direct
		}
	}
	t.Fatalf("%s has no listener %s", c, name)
	return "", ""
}

// Close ends the broker of StartKafka.
func (c *Cluster) Close() error { return c.broker.Close() }

// LogPath is the broker's log; empty where it has none that we can read.
func (c *Cluster) LogPath() string {
	if b, ok := c.broker.(*kraft.Broker); ok {
		return b.LogPath()
	}
	return ""
}

// Stop ends the broker in an orderly way, within two minutes.
func (c *Cluster) Stop(t testing.TB) { t.Helper(); c.control(t, "stop", c.mine().Stop) }

// Kill ends the broker as a crash does.
func (c *Cluster) Kill(t testing.TB) { t.Helper(); c.control(t, "kill", c.mine().Kill) }

// Start starts the broker again, on the same port with the same data, and returns when it answers.
func (c *Cluster) Start(t testing.TB) {
	t.Helper()
	c.control(t, "start", func() error { return c.mine().Start(context.WithoutCancel(t.Context())) })
}

func (c *Cluster) control(t testing.TB, verb string, do func() error) {
	t.Helper()
	if err := do(); err != nil {
		t.Fatalf("%s %s: %v", verb, c.What, err)
	}
}

func (c *Cluster) mine() broker {
	if !c.owned {
		panic("harness: this broker belongs to other tests too: use harness.OwnKafka")
	}
	return c.broker
}

// Client is a Kafka client that the test's end closes.
func (c *Cluster) Client(t testing.TB, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	client, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(strings.Split(c.addr, ",")...),
		kgo.MetadataMinAge(50 * time.Millisecond), // a topic that is made later is seen soon
		kgo.MetadataMaxAge(500 * time.Millisecond),
	}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

// Around is a Kafka client that does not go through the cluster's proxy, for who watches what the
// proxy spoils.
func (c *Cluster) Around(t testing.TB, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	if c.direct == "" {
		return c.Client(t, opts...)
	}
	return c.Client(t, append(opts, kgo.Dialer(func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, c.direct)
	}))...)
}

// Topic makes a topic of a unique name with that many partitions. The test's end deletes it.
func (c *Cluster) Topic(t testing.TB, partitions int) string {
	t.Helper()
	topic := Name(t)
	admin := kadm.NewClient(c.Client(t))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := admin.CreateTopic(ctx, int32(partitions), 1, nil, topic); err != nil {
		t.Fatalf("create topic %s: %v", topic, err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if _, err := admin.DeleteTopic(ctx, topic); err != nil {
			t.Logf("topic %s is left over: %v", topic, err) // the broker may be stopped
		}
	})
	return topic
}

const whatFake = "kfake"

func (c *Cluster) String() string { return fmt.Sprintf("%s on %s", c.What, c.addr) }
