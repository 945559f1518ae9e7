package demo

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"walrelay/outbox"
)

// consumer is any consumer of the topics. It knows an event by its header event_id.
type consumer struct {
	client *kgo.Client
	events *ledger
}

// newConsumer makes the topics first: a consumer finds out about a new topic only when it next
// refreshes its metadata, and that wait is not the relay's latency.
func newConsumer(ctx context.Context, brokers, topics []string, events *ledger) (*consumer, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.ConsumeTopics(topics...),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return nil, fmt.Errorf("start the consumer: %w", err)
	}
	made, err := kadm.NewClient(client).CreateTopics(ctx, -1, -1, nil, topics...)
	if err == nil {
		err = made.Error()
	}
	if err != nil {
		client.Close()
		return nil, fmt.Errorf("create the topics of the demo: %w", err)
	}
	return &consumer{client: client, events: events}, nil
}

func (c *consumer) close() { c.client.Close() }

// run reads until ctx ends.
func (c *consumer) run(ctx context.Context) error {
	defer c.client.Close()
	for {
		fetches := c.client.PollFetches(ctx)
		now := time.Now()
		if ctx.Err() != nil {
			return nil
		}
		if err := fetches.Err(); err != nil {
			return fmt.Errorf("consume: %w", err)
		}
		var errs []error
		fetches.EachRecord(func(r *kgo.Record) {
			a, err := read(r)
			if err != nil {
				errs = append(errs, err)
				return
			}
			a.at = now
			c.events.saw(a)
		})
		if err := errors.Join(errs...); err != nil {
			return err
		}
	}
}

func read(r *kgo.Record) (arrival, error) {
	a := arrival{topic: r.Topic, key: string(r.Key)}
	found := false
	for _, h := range r.Headers {
		switch h.Key {
		case "event_type":
			a.eventType = string(h.Value)
		case "event_id":
			id, err := hex.DecodeString(strings.ReplaceAll(string(h.Value), "-", ""))
			if err != nil || len(id) != len(a.id) {
				return a, fmt.Errorf("record at %s/%d/%d: event_id %q is no uuid", r.Topic, r.Partition, r.Offset, h.Value)
			}
			a.id, found = outbox.EventID(id), true
		}
	}
	if !found {
		return a, fmt.Errorf("record at %s/%d/%d has no event_id", r.Topic, r.Partition, r.Offset)
	}
	return a, nil
}
