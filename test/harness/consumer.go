package harness

import (
	"context"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"walrelay/outbox"
)

// Consumer reads topics from their beginning, without a group, and keeps what it has read. It is
// for one goroutine.
type Consumer struct {
	client  *kgo.Client
	records []*kgo.Record
}

// Consume reads topics by name; those that do not exist yet are read when they do.
func (c *Cluster) Consume(t testing.TB, topics ...string) *Consumer {
	t.Helper()
	return c.consumer(t, kgo.ConsumeTopics(topics...))
}

// ConsumeMatching reads every topic that the regular expressions match, those too that are made
// later.
func (c *Cluster) ConsumeMatching(t testing.TB, patterns ...string) *Consumer {
	t.Helper()
	return c.consumer(t, kgo.ConsumeRegex(), kgo.ConsumeTopics(patterns...))
}

func (c *Cluster) consumer(t testing.TB, opts ...kgo.Opt) *Consumer {
	t.Helper()
	opts = append(opts, kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	return &Consumer{client: c.Client(t, opts...)}
}

// Until reads on until enough says so of all records so far, those of earlier calls included, and
// returns them. A broker that is away is waited for; the context bounds it.
func (c *Consumer) Until(ctx context.Context, enough func(all []*kgo.Record) bool) ([]*kgo.Record, error) {
	for !enough(c.records) {
		fetches := c.client.PollFetches(ctx)
		c.records = append(c.records, fetches.Records()...)
		if err := ctx.Err(); err != nil {
			return c.records, fmt.Errorf("consumed %d records and wait for more: %w", len(c.records), err)
		}
	}
	return c.records, nil
}

// Events reads on until n different events were seen.
func (c *Consumer) Events(ctx context.Context, n int) ([]*kgo.Record, error) {
	seen := map[outbox.EventID]struct{}{}
	counted := 0
	return c.Until(ctx, func(all []*kgo.Record) bool {
		for _, r := range all[counted:] {
			if id, ok := EventIDOf(r); ok {
				seen[id] = struct{}{}
			}
		}
		counted = len(all)
		return len(seen) >= n
	})
}

// Records are those that were read so far.
func (c *Consumer) Records() []*kgo.Record { return c.records }

// HeaderOf is the value of the record's last header of that name.
func HeaderOf(r *kgo.Record, name string) (string, bool) {
	for i := len(r.Headers) - 1; i >= 0; i-- {
		if r.Headers[i].Key == name {
			return string(r.Headers[i].Value), true
		}
	}
	return "", false
}

// EventIDOf reads the record's event_id header.
func EventIDOf(r *kgo.Record) (id outbox.EventID, ok bool) {
	text, found := HeaderOf(r, "event_id")
	if !found {
		return id, false
	}
	raw, err := hex.DecodeString(strings.ReplaceAll(text, "-", ""))
	return id, err == nil && copy(id[:], raw) == len(id)
}
