package harness

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"

	"walrelay/internal/localdev"
)

// FakeKafka is kfake for this test alone, for tests that inject faults into the protocol or that
// have no time for a real broker. It needs nothing and runs with -short too.
func FakeKafka(t testing.TB, opts localdev.BrokerOptions) *localdev.Broker {
	t.Helper()
	b, err := localdev.StartBroker(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

// fakeBroker is kfake with a data folder, so that it can be ended and come back. Its Kill is as
// orderly as its Stop: there is no process to kill.
type fakeBroker struct {
	dir  *localdev.Folder
	port int

	mu struct {
		sync.Mutex
		running *localdev.Broker
	}
}

func newFake() (*fakeBroker, error) {
	dir, err := localdev.NewFolder("", "kfake")
	if err != nil {
		return nil, err
	}
	b := &fakeBroker{dir: dir}
	if err := b.Start(context.Background()); err != nil {
		return nil, errors.Join(err, dir.Remove())
	}
	return b, nil
}

func (b *fakeBroker) Start(context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mu.running != nil {
		return errors.New("kfake runs already")
	}
	running, err := localdev.StartBroker(localdev.BrokerOptions{Port: b.port, DataDir: filepath.Join(b.dir.Path, "data")})
	if err != nil {
		return err
	}
	b.mu.running, b.port = running, running.Port()
	return nil
}

func (b *fakeBroker) Stop() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mu.running != nil {
		b.mu.running.Close()
		b.mu.running = nil
	}
	return nil
}

func (b *fakeBroker) Kill() error { return b.Stop() }

func (b *fakeBroker) Close() error { return errors.Join(b.Stop(), b.dir.Remove()) }

func (b *fakeBroker) addr() string { return fmt.Sprintf("127.0.0.1:%d", b.port) }
