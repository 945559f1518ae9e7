package sink

import (
	"errors"
	"log/slog"
	"runtime"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kfake"

	"walrelay/router"
)

// counts is an Acker as the tracker is one.
type counts struct{ acked, failed int }

func (c *counts) Acked(_ uint64, err error) {
	if err != nil {
		c.failed++
		return
	}
	c.acked++
}

// offline is a producer that knows the topic t and never talks to a broker.
func offline(tb testing.TB) *Producer {
	p, err := New(Config{
		Brokers: []string{"127.0.0.1:1"}, ClientID: "x", Compression: "none", MaxMessageBytes: 1000012, TopicPartitions: -1, TopicReplicationFactor: -1,
	}, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { p.Close(tb.Context()) })
	p.topics.get("t").facts.Store(&facts{limit: 1000012})
	return p
}

// pass takes a record through all of ours: acquire, fill, admit, promise, pool.
func pass(tb testing.TB, p *Producer, to Acker, rec *router.Record, err error) {
	e := p.Acquire()
	e.Record.Topic, e.Record.Key, e.Record.Value = rec.Topic, rec.Key, rec.Value
	e.Record.Headers = append(e.Record.Headers, rec.Headers...)
	if err := p.admit(e, to, 1); err != nil {
		tb.Fatal(err)
	}
	e.promise(&e.kafka, err)
}

func record() *router.Record {
	return &router.Record{Topic: "t", Key: []byte("key"), Value: make([]byte, 300), Headers: make([]router.Header, 6)}
}

func TestOursAllocatesNothing(t *testing.T) {
	p, to, rec := offline(t), &counts{}, record()
	if n := testing.AllocsPerRun(1000, func() { pass(t, p, to, rec, nil) }); n != 0 {
		t.Errorf("%v allocations per record", n)
	}
	if to.acked == 0 || p.Outstanding() != 0 {
		t.Errorf("acked %d, outstanding %d", to.acked, p.Outstanding())
	}
}

func BenchmarkOurs(b *testing.B) {
	p, to, rec := offline(b), &counts{}, record()
	b.ReportAllocs()
	for b.Loop() {
		pass(b, p, to, rec, nil)
	}
}

// What goes back to the pool holds on to nothing of its last record.
func TestIdleEntryHoldsNothing(t *testing.T) {
	p := offline(t)
	rec := record()
	rec.Value = make([]byte, 900_000)
	pass(t, p, &counts{}, rec, errors.New("failed"))
	e := p.Acquire()
	if e.kafka.Key != nil || e.kafka.Value != nil || e.Record.Value != nil || e.kafka.Context != nil || !e.kafka.Timestamp.IsZero() {
		t.Errorf("it holds %+v", e.kafka)
	}
	for _, h := range e.kafka.Headers[:cap(e.kafka.Headers)] {
		if h.Key != "" || h.Value != nil {
			t.Errorf("it holds header %q", h.Key)
		}
	}
	if e.largest > 2*keptBytes {
		t.Errorf("it counts as %d bytes", e.largest)
	}
}

func TestIdleEntriesAreBoundedInBytes(t *testing.T) {
	for _, size := range []int{100, 10_000, 900_000} {
		p, rec := offline(t), record()
		rec.Value = make([]byte, size)
		entries := make([]*Entry, 20_000)
		for i := range entries {
			entries[i] = p.Acquire()
			entries[i].largest = min(2*size, 2*keptBytes)
		}
		for _, e := range entries {
			p.Release(e)
		}
		idle := p.pool.idle.Load()
		if idle > maxIdleBytes || idle < maxIdleBytes/2 {
			t.Errorf("records of %d bytes: %d bytes idle", size, idle)
		}
		n := 0
		for p.pool.get() != nil {
			n++
		}
		if got := p.pool.idle.Load(); got != 0 {
			t.Errorf("%d entries taken, and %d bytes are idle still", n, got)
		}
	}
}

// Promises give entries back while the source takes them: no entry is ever with two owners.
func TestPoolUnderConcurrency(t *testing.T) {
	p := offline(t)
	busy := make(chan *Entry, 256)
	var owners sync.Map
	var wg sync.WaitGroup
	wg.Go(func() {
		defer close(busy)
		for range 30_000 {
			e := p.Acquire()
			if _, taken := owners.LoadOrStore(e, true); taken {
				t.Error("an entry has two owners")
				return
			}
			busy <- e
		}
	})
	for range 2 {
		wg.Go(func() {
			for e := range busy {
				owners.Delete(e)
				p.Release(e)
			}
		})
	}
	wg.Wait()
}

// The whole way with kgo in it: what it allocates for a record is its own.
func BenchmarkProduce(b *testing.B) {
	k := startFake(b, kfake.BlackholeProduce(), kfake.SeedTopics(6, "t"))
	p := start(b, k, nil)
	p.send(0, "t", "k", "v")
	p.acks.wait(b, 1)
	rec, to := record(), &counts{}
	b.ReportAllocs()
	b.SetBytes(300)
	for b.Loop() {
		for p.Outstanding() > 16_000 {
			runtime.Gosched()
		}
		e := p.Acquire()
		e.Record.Topic, e.Record.Key, e.Record.Value = rec.Topic, rec.Key, rec.Value
		e.Record.Headers = append(e.Record.Headers, rec.Headers...)
		if err := p.Produce(e, to, 1); err != nil {
			b.Fatal(err)
		}
	}
	if err := p.Flush(b.Context()); err != nil {
		b.Fatal(err)
	}
	if to.failed > 0 {
		b.Errorf("%d failed", to.failed)
	}
}
