package environment

import (
	"context"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"walrelay/relay"
	"walrelay/test/integration/fixture"
)

// A connection may die without a word: a load balancer or a proxy whose other half is gone takes
// whatever it is given and never answers, and no time-out of TCP ends that. The relay must find out
// by itself, whichever of its two connections it is.
func TestConnectionsThatSwallowEverything(t *testing.T) {
	t.Parallel()
	for name, which := range map[string]int{"the one that settles": 0, "the one that streams": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := fixture.New(t)
			network := &network{}
			t.Cleanup(network.close) // pgx waits for a lost connection's end on a goroutine of its own
			r := f.Relay(t, func(o *relay.Options) { o.Dial = network.dial })
			r.Ready(t)
			w := f.Writer(t)
			write(t, w, 1)
			f.Events(t, 1)
			f.Settled(t)
			network.freeze(which)
			write(t, w, 1)
			f.Events(t, 2)
			f.Settled(t)
			r.Stop(t)
			f.Verify(t, w.Committed())
		})
	}
}

// network counts the connections in the order in which they were opened: the session opens the one
// that settles first.
type network struct {
	mu    sync.Mutex
	conns []*conn
}

func (n *network) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	opened, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: opened}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.conns = append(n.conns, c)
	return c, nil
}

func (n *network) freeze(which int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.conns[which].frozen.Store(true)
}

func (n *network) close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range n.conns {
		c.Close()
	}
}

// conn is a connection that can stop passing anything on, its end included.
type conn struct {
	net.Conn
	frozen   atomic.Bool
	closed   atomic.Bool
	deadline atomic.Pointer[time.Time] // of reads
}

func (c *conn) Write(b []byte) (int, error) {
	if c.frozen.Load() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

func (c *conn) Read(b []byte) (int, error) {
	if !c.frozen.Load() {
		n, err := c.Conn.Read(b)
		if !c.frozen.Load() {
			return n, err
		}
	}
	for !c.closed.Load() {
		if d := c.deadline.Load(); d != nil && !d.IsZero() && time.Now().After(*d) {
			return 0, os.ErrDeadlineExceeded
		}
		time.Sleep(time.Millisecond)
	}
	return 0, net.ErrClosed
}

func (c *conn) SetReadDeadline(d time.Time) error {
	c.deadline.Store(&d)
	return c.Conn.SetReadDeadline(d)
}

func (c *conn) SetDeadline(d time.Time) error {
	c.deadline.Store(&d)
	return c.Conn.SetDeadline(d)
}

func (c *conn) Close() error {
	c.closed.Store(true)
	return c.Conn.Close()
}
