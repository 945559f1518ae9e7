package simulation

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// read returns every record of every topic, those of a partition in their order.
func (w *world) read() ([]*kgo.Record, error) {
	partitions := make(map[string]map[int32]kgo.Offset)
	var ends int64
	left := make(map[string]int64) // records that are not read yet, by topic and partition
	for _, topic := range topics() {
		for _, p := range w.kafka.PartitionInfos(topic) {
			if p.HighWatermark == 0 {
				continue
			}
			if partitions[topic] == nil {
				partitions[topic] = make(map[int32]kgo.Offset)
			}
			partitions[topic][p.Partition] = kgo.NewOffset().AtStart()
			left[fmt.Sprint(topic, p.Partition)] = p.HighWatermark
			ends += p.HighWatermark
		}
	}
	if ends == 0 {
		return nil, nil
	}
	w.kafkaNet.SetLatency(0)
	w.kafkaNet.SetBuffer(1 << 20)
	client, err := kgo.NewClient(
		kgo.SeedBrokers(brokerAddress(0)), kgo.Dialer(w.kafkaNet.From("10.9.9.9")), kgo.DisableClientMetrics(),
		kgo.ConsumePartitions(partitions), kgo.FetchMaxWait(100*time.Millisecond),
	)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	records := make([]*kgo.Record, 0, ends)
	for int64(len(records)) < ends {
		fetches := client.PollFetches(ctx)
		if ctx.Err() != nil {
			return records, fmt.Errorf("%d of %d records could be read", len(records), ends)
		}
		if err := fetches.Err(); err != nil && !errors.Is(err, context.DeadlineExceeded) {
			return records, err
		}
		fetches.EachRecord(func(r *kgo.Record) { records = append(records, r) })
	}
	return records, nil
}

// topics are those that a row can belong on.
func topics() []string {
	all := append([]string(nil), owned[:]...)
	for _, a := range aggregates {
		for _, e := range events {
			all = append(all, "app."+a+"."+e)
		}
	}
	return all
}
