package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"walrelay/internal/localdev"
	"walrelay/internal/usage"
	"walrelay/test/harness/kraft"
)

// bench is one run: its servers, the built relay and what was measured.
type bench struct {
	options
	out    io.Writer
	began  time.Time
	folder *localdev.Folder
	binary string // walrelay
	self   string // this program, for its null reader
	pg     *localdev.Server
	broker broker
	client *kgo.Client // looks at offsets and makes topics
	admin  *kadm.Client
	result result
}

// broker is what brokers of either kind can do here.
type broker interface {
	Addr() string
	Kill() error
	Start(ctx context.Context) error
	Close() error
}

// open builds the relay and starts the servers.
func (b *bench) open(ctx context.Context) (err error) {
	if b.folder, err = localdev.NewFolder("", "bench"); err != nil {
		return err
	}
	if b.self, err = os.Executable(); err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	b.say("building walrelay")
	b.binary = filepath.Join(b.folder.Path, "walrelay")
	build := exec.CommandContext(ctx, "go", "build", "-ldflags", "-s -w", "-o", b.binary, "walrelay/cmd/walrelay")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build walrelay: %w\n%s", err, out)
	}
	if err := b.startPostgres(ctx); err != nil {
		return err
	}
	if err := b.startKafka(ctx); err != nil {
		return err
	}
	b.result.Machine = usage.Machine() + ", everything on it"
	b.result.Rows, b.result.At = b.rows, b.began.UTC().Format(time.RFC3339)
	b.result.Commit = commit(ctx)
	b.say("%s, %s, on %s", b.result.PostgreSQL, b.result.Kafka, b.result.Machine)
	return nil
}

func (b *bench) startPostgres(ctx context.Context) error {
	binaries, err := localdev.Ensure(ctx, localdev.Config{
		Bin: os.Getenv("PG_BIN"), Repository: os.Getenv("PG_REPOSITORY"), Cache: os.Getenv("WALRELAY_CACHE"),
	}, 0, func(p localdev.Progress) { b.say("%s", p) })
	if err != nil {
		return err
	}
	b.result.PostgreSQL = fmt.Sprintf("PostgreSQL %d.%d", binaries.Major, binaries.Minor)
	// All that a run writes fits into memory, and no checkpoint falls into a measurement by time or size:
	// what is measured is decoding and not the disk.
	b.pg, err = localdev.New(ctx, localdev.Options{Binaries: binaries, Settings: map[string]string{
		"shared_buffers": "1GB", "max_wal_size": "16GB", "checkpoint_timeout": "1h", "max_replication_slots": "40", "max_wal_senders": "40",
	}})
	return err
}

func (b *bench) startKafka(ctx context.Context) error {
	if b.kafka == "real" {
		install, err := kraft.Find(ctx, localdev.Config{Cache: os.Getenv("WALRELAY_CACHE")}, true, func(s string) { b.say("%s", s) })
		switch {
		case errors.Is(err, kraft.ErrUnavailable):
			b.say("NO APACHE KAFKA HERE, kfake instead: its figures say less. %v", err)
		case err != nil:
			return err
		default:
			k, err := kraft.New(ctx, install, "")
			if err != nil {
				return err
			}
			b.broker, b.result.Kafka = k, "Apache Kafka "+kraft.Version
		}
	}
	if b.broker == nil {
		k := &fake{dir: filepath.Join(b.folder.Path, "kfake")}
		if err := k.Start(ctx); err != nil {
			return err
		}
		b.broker, b.result.Kafka = k, "kfake (NOT A REAL KAFKA)"
	}
	var err error
	b.client, err = kgo.NewClient(kgo.SeedBrokers(b.broker.Addr()), kgo.MetadataMinAge(50*time.Millisecond))
	if err != nil {
		return fmt.Errorf("make a Kafka client: %w", err)
	}
	b.admin = kadm.NewClient(b.client)
	return nil
}

func (b *bench) close() error {
	var errs []error
	if b.client != nil {
		b.client.Close()
	}
	if b.broker != nil {
		errs = append(errs, b.broker.Close())
	}
	if b.pg != nil {
		errs = append(errs, b.pg.Close())
	}
	if b.folder != nil {
		errs = append(errs, b.folder.Remove())
	}
	return errors.Join(errs...)
}

// fake is kfake in this process, with its records in a folder so that it can go and come back.
type fake struct {
	dir     string
	running *localdev.Broker
}

func (f *fake) Start(context.Context) error {
	var o localdev.BrokerOptions
	o.DataDir = f.dir
	if f.running != nil {
		o.Port = f.running.Port()
	}
	b, err := localdev.StartBroker(o)
	if err != nil {
		return err
	}
	f.running = b
	return nil
}

func (f *fake) Addr() string { return f.running.Addr() }
func (f *fake) Kill() error  { f.running.Close(); return nil }
func (f *fake) Close() error { f.running.Close(); return nil }

// commit is what was measured, as git calls it.
func commit(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, "git", "describe", "--tags", "--always", "--dirty").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}

const partitions = 6

// topic makes the topic that a service's events go to, so that no measurement has its creation in it.
func (b *bench) topic(ctx context.Context, name string) error {
	if _, err := b.admin.CreateTopic(ctx, partitions, 1, nil, name); err != nil {
		return fmt.Errorf("create topic %s: %w", name, err)
	}
	// The broker learns of it a moment after it was created.
	for {
		_, err := b.landed(ctx, name)
		if !errors.Is(err, kerr.UnknownTopicOrPartition) {
			return err
		}
		if err := sleepUntil(ctx, time.Now().Add(10*time.Millisecond)); err != nil {
			return err
		}
	}
}

// forget deletes topics that nobody needs any more.
func (b *bench) forget(names ...string) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if _, err := b.admin.DeleteTopics(ctx, names...); err != nil {
		b.say("topics are left over: %v", err)
	}
}

// landed is the number of records that the broker holds of a topic that is young enough to be whole.
func (b *bench) landed(ctx context.Context, topic string) (int64, error) {
	ends, err := b.admin.ListEndOffsets(ctx, topic)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return 0, fmt.Errorf("look at the end of topic %s: %w", topic, err)
	}
	var n int64
	ends.Each(func(o kadm.ListedOffset) { n += o.Offset })
	return n, nil
}
