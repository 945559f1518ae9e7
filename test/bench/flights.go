package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/twmb/franz-go/pkg/kgo"
)

// flights are the times of numbered events, in nanoseconds since the measurement began; 0 is not yet.
// Consumer and writer race: the record may be there before the writer's commit has returned.
type flights struct {
	began      time.Time
	left, seen []atomic.Int64
	missing    atomic.Int64
}

func newFlights(began time.Time, n int) *flights {
	f := &flights{began: began, left: make([]atomic.Int64, n), seen: make([]atomic.Int64, n)}
	f.missing.Store(int64(n))
	return f
}

func (f *flights) leave(i int) { f.left[i].Store(int64(time.Since(f.began))) }

func (f *flights) arrive(i int, at time.Time) {
	if f.seen[i].CompareAndSwap(0, int64(at.Sub(f.began))) {
		f.missing.Add(-1)
	}
}

// summary leaves out the events of the warm-up.
func (f *flights) summary(from int) percentiles {
	h := hdrhistogram.New(1, int64(5*time.Minute/time.Microsecond), 3)
	for i := from; i < len(f.left); i++ {
		us := (f.seen[i].Load() - f.left[i].Load()) / 1000
		_ = h.RecordValue(max(us, 1)) // bounded by arriveWait
	}
	ms := func(us int64) float64 { return float64(us) / 1000 }
	return percentiles{P50: ms(h.ValueAtPercentile(50)), P99: ms(h.ValueAtPercentile(99)), Max: ms(h.Max()), N: h.TotalCount()}
}

type percentiles struct {
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
	N   int64   `json:"n"`
}

// consume notes the arrival of every record of the topics until ctx ends.
func consume(ctx context.Context, addr string, topics map[string]*flights) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.ConsumeTopics(slices.Collect(maps.Keys(topics))...))
	if err != nil {
		return fmt.Errorf("make a consumer: %w", err)
	}
	defer client.Close()
	for ctx.Err() == nil {
		fetches := client.PollFetches(ctx)
		at := time.Now()
		for r := range fetches.RecordsAll() {
			i, err := numberOf(r.Value)
			if err != nil {
				return err
			}
			topics[r.Topic].arrive(i, at)
		}
	}
	return nil
}

func sleepUntil(ctx context.Context, at time.Time) error {
	d := time.Until(at)
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
