package sink

import (
	"errors"
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"walrelay/router"
)

// A batch limit of exactly batchSize lets the record pass in kgo, one byte less does not: the two
// count alike. A new client each time, since kgo counts with the largest overhead until it has
// learnt the broker's version.
func TestBatchSizeIsWhatKgoCounts(t *testing.T) {
	k := startFake(t)
	topic := name(t, "sizes")
	k.create(t, topic, 1, map[string]string{"max.message.bytes": "10000000"})
	headers := func(n int) []router.Header {
		h := make([]router.Header, n)
		for i := range h {
			h[i] = router.Header{Key: fmt.Sprint("header-", i), Value: make([]byte, i)}
		}
		return h
	}
	for _, rec := range []router.Record{
		{Value: make([]byte, 500)},
		{Key: []byte{}, Value: make([]byte, 500)},
		{Key: make([]byte, 63), Value: make([]byte, 600)},
		{Key: make([]byte, 64), Value: make([]byte, 600)},
		{Key: make([]byte, 600)},
		{Value: make([]byte, 8191-65)},
		{Value: make([]byte, 8191)},
		{Value: make([]byte, 8192)},
		{Value: make([]byte, 1<<20-1)},
		{Value: make([]byte, 1<<20)},
		{Value: make([]byte, 600), Headers: headers(1)},
		{Value: make([]byte, 600), Headers: append(headers(63), router.Header{Key: "", Value: nil})},
		{Value: make([]byte, 600), Headers: headers(200)},
	} {
		rec.Topic = topic
		size := batchSize(&rec)
		for limit, fits := range map[int]bool{size: true, size - 1: false} {
			err := produceWithLimit(t, k, &rec, int32(limit))
			if got := !errors.Is(err, kerr.MessageTooLarge); got != fits || err != nil && got {
				t.Errorf("key %d, value %d, headers %d: size %d, limit %d: %v", len(rec.Key), len(rec.Value), len(rec.Headers), size, limit, err)
			}
		}
	}
}

func produceWithLimit(t *testing.T, k *kafka, rec *router.Record, limit int32) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(k.brokers...), kgo.ProducerBatchMaxBytes(limit), kgo.DisableClientMetrics())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	e := &Entry{Record: *rec}
	e.fill(0, e.handed)
	return client.ProduceSync(t.Context(), &e.kafka).FirstErr()
}
