package sink

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
)

// The broker stops with records outstanding and comes back on its port with its data.
func TestBrokerIsStoppedAndStarted(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	k := startFake(t, kfake.DataDir(dir), kfake.SeedTopics(3, "t"))
	port := k.port(t)
	p := start(t, k, nil)
	const keys, perKey, stop = 20, 60, 20
	token := uint64(0)
	send := func(from, to int) {
		for n := from; n < to; n++ {
			for i := range keys {
				p.send(token, "t", fmt.Sprint("k", i), fmt.Sprint(n))
				token++
			}
		}
	}
	send(0, stop)
	k.fake.Close() // some of them are in flight
	send(stop, perKey)
	p.log.await(t, "kafka unreachable")
	if p.Connected() {
		t.Error("connected")
	}
	again, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.DataDir(dir), kfake.Ports(port))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(again.Close)
	began := time.Now()
	if failed := p.acks.wait(t, keys*perKey); len(failed) > 0 {
		t.Fatalf("failed: %v", failed)
	}
	t.Logf("all acknowledged %v after the broker was back", time.Since(began).Round(time.Millisecond))
	checkOrder(t, k.read(t, "t", keys*perKey), keys, perKey)
	if n := k.end(t, "t"); n != keys*perKey {
		t.Errorf("%d records on the topic, want %d", n, keys*perKey)
	}
	p.log.await(t, "kafka reachable again")
	for _, msg := range []string{"kafka unreachable", "kafka reachable again"} {
		if n := p.log.count(msg); n != 1 {
			t.Errorf("%q was logged %d times", msg, n)
		}
	}
	if lines := strings.Count(p.log.String(), "\n"); lines > 6 {
		t.Errorf("%d lines were logged", lines)
	}
}

// The broker is away when the relay starts.
func TestBrokerComesLater(t *testing.T) {
	k := startFake(t)
	port := k.port(t)
	k.fake.Close()
	p := start(t, k, nil)
	p.log.await(t, "kafka unreachable")
	e := p.Acquire()
	e.Record.Topic = "t"
	if err := p.Produce(e, p.acks, 0); !errors.Is(err, ErrPending) {
		t.Fatalf("got %v", err)
	}
	p.Release(e)
	again, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.Ports(port))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(again.Close)
	p.send(0, "t", "k", "v")
	if failed := p.acks.wait(t, 1); len(failed) > 0 {
		t.Fatal(failed)
	}
	if n := p.log.count("kafka unreachable"); n != 1 {
		t.Errorf("logged %d times", n)
	}
}

func (k *kafka) port(t *testing.T) int {
	t.Helper()
	var port int
	if _, err := fmt.Sscanf(k.brokers[0], "127.0.0.1:%d", &port); err != nil {
		t.Fatal(err)
	}
	return port
}
