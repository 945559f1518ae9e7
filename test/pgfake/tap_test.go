package pgfake_test

import (
	"bytes"
	"net"
	"runtime"
	"sync"

	"walrelay/test/pgfake/memnet"
)

// dialled are the connections that a source has opened, oldest first.
type dialled struct {
	mu    sync.Mutex
	conns []*tap
}

// tap is a connection that knows what it is for, and which goroutines have written to its stream.
type tap struct {
	net.Conn
	mu          sync.Mutex
	replication bool
	writers     map[string]int // statuses by goroutine
}

func (d *dialled) keep(conn net.Conn, err error) (net.Conn, error) {
	if err != nil {
		return nil, err
	}
	t := &tap{Conn: conn, writers: make(map[string]int)}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.conns = append(d.conns, t)
	return t, nil
}

func (t *tap) Write(b []byte) (int, error) {
	t.mu.Lock()
	t.replication = t.replication || bytes.Contains(b, []byte("replication\x00database\x00"))
	if b[0] == 'd' { // CopyData
		t.writers[goroutine()]++
	}
	t.mu.Unlock()
	return t.Conn.Write(b)
}

// goroutine is the first line of the running goroutine's stack, less its state.
func goroutine() string {
	buf := make([]byte, 64)
	name, _, _ := bytes.Cut(buf[:runtime.Stack(buf, false)], []byte(" ["))
	return string(name)
}

// last is the newest connection that replicates, or that does not.
func (d *dialled) last(replication bool) *tap {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := len(d.conns) - 1; i >= 0; i-- {
		if t := d.conns[i]; t.replicates() == replication {
			return t
		}
	}
	return nil
}

func (t *tap) replicates() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.replication
}

func (t *tap) link() *memnet.Link { return t.Conn.(*memnet.Conn).Link() }
