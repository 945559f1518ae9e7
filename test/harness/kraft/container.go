package kraft

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// ImageVersion is the Apache Kafka of the container image.
const ImageVersion = "4.1.0"

const image = "apache/kafka:" + ImageVersion

// Container is one Kafka node in a container, for machines with a container engine and no JDK. It
// keeps its port and its data over Stop, Kill and Start, and ends with Close.
type Container struct {
	engine     string // docker or podman
	id         string
	port       int
	advertised string
}

// FindEngine returns the program of a container engine that works and either has the image or,
// where fetch is set, may pull it.
func FindEngine(ctx context.Context, fetch bool) (string, error) {
	for _, engine := range []string{"docker", "podman"} {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		// A client without its engine is common: only an answer counts.
		if exec.CommandContext(ctx, engine, "info").Run() != nil {
			continue
		}
		if fetch || exec.CommandContext(ctx, engine, "image", "inspect", image).Run() == nil {
			return engine, nil
		}
	}
	return "", errors.New("no container engine answers (docker info, podman info)")
}

// NewContainer starts a broker in a container and returns when it answers. advertised is the
// host:port that clients are sent to; empty means the broker itself.
func NewContainer(ctx context.Context, engine, advertised string) (*Container, error) {
	ports, err := freePorts(1)
	if err != nil {
		return nil, err
	}
	c := &Container{engine: engine, port: ports[0], advertised: advertised}
	if advertised == "" {
		c.advertised = c.Direct()
	}
	ctx, cancel := context.WithTimeout(ctx, fetchLimit)
	defer cancel()
	port := strconv.Itoa(c.port)
	args := []string{"create", "--publish", "127.0.0.1:" + port + ":" + port}
	for _, variable := range []string{
		"KAFKA_NODE_ID=1", "KAFKA_PROCESS_ROLES=broker,controller", "KAFKA_CONTROLLER_QUORUM_VOTERS=1@localhost:9093",
		"KAFKA_LISTENERS=PLAINTEXT://:" + port + ",CONTROLLER://:9093", "KAFKA_ADVERTISED_LISTENERS=PLAINTEXT://" + c.advertised,
		"KAFKA_CONTROLLER_LISTENER_NAMES=CONTROLLER", "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
		"KAFKA_NUM_PARTITIONS=3", "KAFKA_AUTO_CREATE_TOPICS_ENABLE=false", "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR=1",
		"KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR=1", "KAFKA_TRANSACTION_STATE_LOG_MIN_ISR=1",
		"KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS=0", "KAFKA_HEAP_OPTS=-Xmx512m",
	} {
		args = append(args, "--env", variable)
	}
	out, err := exec.CommandContext(ctx, engine, append(args, image)...).Output()
	if err != nil {
		return nil, fmt.Errorf("%s create %s: %w%s", engine, image, err, stderrOf(err))
	}
	c.id = strings.TrimSpace(string(out))
	if err := c.Start(ctx); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func stderrOf(err error) string {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return ": " + strings.TrimSpace(string(exit.Stderr))
	}
	return ""
}

func (c *Container) do(limit time.Duration, args ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if _, err := exec.CommandContext(ctx, c.engine, args...).Output(); err != nil {
		return fmt.Errorf("%s %s: %w%s", c.engine, args[0], err, stderrOf(err))
	}
	return nil
}

// Start starts the container, again after Stop or Kill, and returns when the broker answers.
func (c *Container) Start(ctx context.Context) error {
	if err := c.do(startLimit, "start", c.id); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	client, err := kgo.NewClient(kgo.SeedBrokers(c.Direct()))
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	defer client.Close()
	for {
		try, cancel := context.WithTimeout(ctx, 2*time.Second)
		meta, err := kadm.NewClient(client).BrokerMetadata(try)
		cancel()
		if err == nil && len(meta.Brokers) > 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the broker in container %s does not answer: %w", c.id, ctx.Err())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// Stop is Kafka's own shutdown; the engine kills it after a minute.
func (c *Container) Stop() error { return c.do(startLimit, "stop", "--time", "60", c.id) }

// Kill ends the broker as a crash does.
func (c *Container) Kill() error { return c.do(stopLimit, "kill", c.id) }

// Close ends the container and removes it with its data.
func (c *Container) Close() error { return c.do(stopLimit, "rm", "--force", "--volumes", c.id) }

// Addr is what clients are given: the advertised host:port.
func (c *Container) Addr() string { return c.advertised }

// Direct is the host:port that the broker listens on.
func (c *Container) Direct() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(c.port)) }
