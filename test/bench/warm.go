package main

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	warmRecords = 600_000
	warmBytes   = 600
	warmTopic   = "bench.warm-up"
)

// warm writes to the broker until most of its Java code is compiled. On two cores the compiler takes a
// quarter of the machine for the first half minute of load, and the first measurement would be of it.
func (b *bench) warm(ctx context.Context) error {
	b.say("warming up the broker with %d records", warmRecords)
	if err := b.topic(ctx, warmTopic); err != nil {
		return err
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(b.broker.Addr()), kgo.ProducerLinger(0), kgo.MaxBufferedRecords(1000))
	if err != nil {
		return fmt.Errorf("warm up: %w", err)
	}
	defer client.Close()
	failed := make(chan error, 1)
	value := make([]byte, warmBytes)
	for i := range warmRecords {
		client.Produce(ctx, &kgo.Record{Topic: warmTopic, Key: fmt.Appendf(nil, "%d", i%1000), Value: value}, func(_ *kgo.Record, err error) {
			if err != nil {
				select {
				case failed <- err:
				default:
				}
			}
		})
	}
	if err := client.Flush(ctx); err != nil {
		return fmt.Errorf("warm up: %w", err)
	}
	b.forget(warmTopic)
	select {
	case err := <-failed:
		return fmt.Errorf("warm up: %w", err)
	default:
		return nil
	}
}
