package memnet

import (
	"net"
	"net/netip"
	"sync"
)

// Listener is a net.Listener of a Network.
type Listener struct {
	network *Network
	addr    netip.AddrPort

	mu       sync.Mutex
	cond     sync.Cond
	queue    []*Conn
	refusing bool
	closed   bool
}

// Accept waits for the next connection.
func (l *Listener) Accept() (net.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.queue) == 0 && !l.closed {
		l.cond.Wait()
	}
	if l.closed {
		return nil, &net.OpError{Op: "accept", Net: "tcp", Addr: l.Addr(), Err: errClosed}
	}
	c := l.queue[0]
	l.queue = l.queue[1:]
	return c, nil
}

// Refuse makes new connections fail as if nobody listened, until it is called with false.
func (l *Listener) Refuse(on bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refusing = on
}

func (l *Listener) offer(c *Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || l.refusing {
		return false
	}
	l.queue = append(l.queue, c)
	l.cond.Broadcast()
	return true
}

// Close ends Accept and resets the connections that nobody accepted.
func (l *Listener) Close() error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return &net.OpError{Op: "close", Net: "tcp", Addr: l.Addr(), Err: errClosed}
	}
	l.closed = true
	queue := l.queue
	l.queue = nil
	l.cond.Broadcast()
	l.mu.Unlock()

	for _, c := range queue {
		c.link.Reset()
		_ = c.Close()
	}
	l.network.mu.Lock()
	defer l.network.mu.Unlock()
	delete(l.network.listeners, l.addr.String())
	return nil
}

// Addr is a *net.TCPAddr.
func (l *Listener) Addr() net.Addr { return net.TCPAddrFromAddrPort(l.addr) }
