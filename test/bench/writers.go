package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"
)

// commitAll commits event after event when its time has come, with as many connections as the rate
// needs: a commit waits for the disk.
func (d *database) commitAll(ctx context.Context, f *flights, rate int) error {
	writers := 1 + rate/250
	var next atomic.Int64
	group, ctx := errgroup.WithContext(ctx)
	for range writers {
		group.Go(func() error {
			conn, err := pgx.Connect(ctx, d.url("unix"))
			if err != nil {
				return fmt.Errorf("connect a writer: %w", err)
			}
			defer conn.Close(context.WithoutCancel(ctx))
			for {
				i := int(next.Add(1) - 1)
				if i >= len(f.left) {
					return nil
				}
				if err := sleepUntil(ctx, f.began.Add(time.Duration(i)*time.Second/time.Duration(rate))); err != nil {
					return err
				}
				_, err := conn.Exec(ctx, `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ('order', $1, 'OrderCreated', $2)`,
					strconv.Itoa(i%1000), string(body(i)))
				if err != nil {
					return fmt.Errorf("commit event %d: %w", i, err)
				}
				f.leave(i)
			}
		})
	}
	return group.Wait()
}

// produceAll produces record after record, each in the middle between two commits of the slow rate,
// as walrelay's own producer does: no linger, all acknowledgements, the same compression.
func (d *database) produceAll(ctx context.Context, f *flights, topic string) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(d.broker.Addr()), kgo.ProducerLinger(0), kgo.ProducerBatchCompression(kgo.SnappyCompression()),
		kgo.DefaultProduceTopic(topic), kgo.RequiredAcks(kgo.AllISRAcks()))
	if err != nil {
		return fmt.Errorf("make a producer: %w", err)
	}
	defer client.Close()
	const pause = time.Second / floorRate
	var failed atomic.Pointer[error]
	for i := range f.left {
		if err := sleepUntil(ctx, f.began.Add(time.Duration(i)*pause+pause/2)); err != nil {
			return err
		}
		record := &kgo.Record{Key: []byte(strconv.Itoa(i % 1000)), Value: body(i), Headers: floorHeaders(), Timestamp: time.Now()}
		f.leave(i)
		client.Produce(ctx, record, func(_ *kgo.Record, err error) {
			if err != nil {
				failed.CompareAndSwap(nil, &err)
			}
		})
	}
	if err := client.Flush(ctx); err != nil {
		return fmt.Errorf("produce the floor: %w", err)
	}
	if err := failed.Load(); err != nil {
		return fmt.Errorf("produce the floor: %w", *err)
	}
	return nil
}

// floorHeaders are as many and as long as those of a relayed record.
func floorHeaders() []kgo.RecordHeader {
	header := func(key, value string) kgo.RecordHeader { return kgo.RecordHeader{Key: key, Value: []byte(value)} }
	return []kgo.RecordHeader{
		header("event_id", "00000000-0000-4000-8000-000000000000"), header("event_type", "OrderCreated"), header("aggregate_type", "order"),
		header("aggregate_id", "customer-0"), header("created_at", "2026-11-30T10:00:00.123456Z"), header("position", "00000001/0000000001928750/00000000"),
	}
}

// body is about 300 bytes of JSON that hold the number.
func body(i int) []byte {
	const note = "a customer of the shop rang twice and asked for the parcel to be left with the neighbour of the house across the street; " +
		"the courier has been told, the order is otherwise unchanged and is to be delivered on the day that was agreed at checkout, by noon"
	return fmt.Appendf(nil, `{"note": %q, "number": %d}`, note, i)
}

func numberOf(value []byte) (int, error) {
	var event struct{ Number int }
	if err := json.Unmarshal(value, &event); err != nil {
		return 0, fmt.Errorf("read the number of an event: %w", err)
	}
	return event.Number, nil
}
