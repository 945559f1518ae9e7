package chaos

import (
	"context"
	"fmt"
	"regexp"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// The consumers stand around the proxy: what they see is what the broker has.

// readOrders reads every topic but the one that is deleted.
func (w *world) readOrders() {
	w.consume(0, kgo.ConsumeRegex(), kgo.ConsumeTopics("^"+regexp.QuoteMeta(w.f.Service)+`\.order\.`))
}

// readAudit reads one life of the topic that is deleted from time to time. A client stays with the
// topic that it met first, so each life has a client of its own.
func (w *world) readAudit() {
	w.stopAudit = w.consume(w.life, kgo.ConsumeTopics(w.auditTopic()))
}

func (w *world) auditTopic() string { return w.f.Service + ".audit" }

// consume reads in the background until the returned function is called, or the run ends.
func (w *world) consume(life int, opts ...kgo.Opt) (stop func()) {
	client := w.f.Kafka.Around(w.t, append(opts, kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))...)
	ctx, cancel := context.WithCancel(w.ctx)
	ended := make(chan struct{})
	w.group.Go(func() error {
		defer close(ended)
		for ctx.Err() == nil {
			client.PollFetches(ctx).EachRecord(func(r *kgo.Record) { w.ledger.read(r, life) })
		}
		return nil
	})
	return func() {
		cancel()
		<-ended
		client.Close()
	}
}

// readToEnd waits until as many records were read as the topics hold. Nothing in them is compacted or
// part of a transaction, so offsets are counts.
func (w *world) readToEnd(ctx context.Context) error {
	admin := kadm.NewClient(w.f.Kafka.Around(w.t))
	topics, err := admin.ListTopics(ctx)
	if err != nil {
		return fmt.Errorf("list topics: %w", err)
	}
	topics.FilterInternal()
	ends, err := admin.ListEndOffsets(ctx, topics.Names()...)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return fmt.Errorf("ask for the ends of the topics: %w", err)
	}
	want := map[string]int64{}
	ends.Each(func(o kadm.ListedOffset) { want[o.Topic] += o.Offset })
	return until(ctx, "every record was read", func() (bool, string) {
		for topic, n := range want {
			if got := w.ledger.heldOf(topic); got < n {
				return false, fmt.Sprintf("%d of %d records of %s", got, n, topic)
			}
		}
		return true, ""
	})
}

// until asks every 20 ms. What it is asked of changes without calling anybody.
func until(ctx context.Context, what string, is func() (bool, string)) error {
	for {
		yes, state := is()
		if yes {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waited in vain until %s: %s", what, state)
		case <-time.After(20 * time.Millisecond):
		}
	}
}
