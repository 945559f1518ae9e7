// Package memnet is a network in memory: listeners, diallers and buffered connections with
// deadlines, and the faults that a real network has, at the byte where a test wants them.
//
// Everything waits on sync.Cond and package time only, so programs that talk over it run inside a
// testing/synctest bubble in virtual time. No goroutine belongs to it.
package memnet

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"sort"
	"sync"
	"time"
)

// defaultBuffer is what fits into one direction: about what the kernels of two hosts hold.
const defaultBuffer = 256 << 10

// Network is a set of listeners by address. The zero value is not usable; call New.
type Network struct {
	mu        sync.Mutex
	listeners map[string]*Listener
	links     map[*Link]struct{}
	nextPort  uint16
	buffer    int
	latency   time.Duration
	onDial    func(*Link) error
}

// New returns a network without listeners.
func New() *Network {
	return &Network{
		listeners: make(map[string]*Listener),
		links:     make(map[*Link]struct{}),
		nextPort:  20000,
		buffer:    defaultBuffer,
	}
}

// SetBuffer sets how many bytes fit into each direction of the connections dialled from now on.
func (n *Network) SetBuffer(bytes int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.buffer = bytes
}

// SetLatency sets how long bytes are under way on the connections dialled from now on.
func (n *Network) SetLatency(d time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.latency = d
}

// OnDial is called for every new connection before either side sees it: a fault can be planted, or
// the dial refused by returning an error. It may be called by several goroutines at once.
func (n *Network) OnDial(f func(*Link) error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.onDial = f
}

// Listen listens on an address such as 10.0.0.1:5432; port 0 takes a free one. It has the signature
// of net.Listen.
func (n *Network) Listen(_, address string) (net.Listener, error) {
	at, err := parseAddr(address)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", address, err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if at.Port() == 0 {
		n.nextPort++
		at = netip.AddrPortFrom(at.Addr(), n.nextPort)
	}
	if _, taken := n.listeners[at.String()]; taken {
		return nil, fmt.Errorf("listen on %s: address in use", at)
	}
	l := &Listener{network: n, addr: at}
	l.cond.L = &l.mu
	n.listeners[at.String()] = l
	return l, nil
}

// parseAddr accepts a host that is an IP address or empty.
func parseAddr(s string) (netip.AddrPort, error) {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return netip.AddrPort{}, err
	}
	if host == "" || host == "localhost" {
		host = "127.0.0.1"
	}
	return netip.ParseAddrPort(net.JoinHostPort(host, port))
}

// DialContext connects to a listener, from a host of its own. It never blocks: as with TCP, the
// connection waits in the listener's queue.
func (n *Network) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	return n.dial(ctx, "127.0.0.1", address)
}

// From returns a dial function whose connections come from that host, an IP address. A server that
// wants to know which of its connections belong to one process looks at the host.
func (n *Network) From(host string) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, _, address string) (net.Conn, error) {
		return n.dial(ctx, host, address)
	}
}

func (n *Network) dial(ctx context.Context, host, address string) (net.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	to, err := parseAddr(address)
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", address, err)
	}
	from, err := netip.ParseAddr(host)
	if err != nil {
		return nil, fmt.Errorf("dial from %s: %w", host, err)
	}
	local, remote := net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, n.port())), net.TCPAddrFromAddrPort(to)

	n.mu.Lock()
	l, onDial := n.listeners[to.String()], n.onDial
	link := &Link{network: n, From: local.String(), To: remote.String(),
		toServer: newPipe(n.buffer), toClient: newPipe(n.buffer), open: 2}
	link.toServer.latency, link.toClient.latency = n.latency, n.latency
	n.mu.Unlock()

	refused := &net.OpError{Op: "dial", Net: "tcp", Addr: remote, Err: errRefused}
	if l == nil {
		return nil, refused
	}
	if onDial != nil {
		if err := onDial(link); err != nil {
			return nil, &net.OpError{Op: "dial", Net: "tcp", Addr: remote, Err: err}
		}
	}
	server := &Conn{link: link, in: link.toServer, out: link.toClient, local: remote, remote: local}
	n.mu.Lock()
	n.links[link] = struct{}{}
	n.mu.Unlock()
	if !l.offer(server) {
		n.mu.Lock()
		delete(n.links, link)
		n.mu.Unlock()
		return nil, refused
	}
	return &Conn{link: link, in: link.toClient, out: link.toServer, local: local, remote: remote}, nil
}

func (n *Network) port() uint16 {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.nextPort++
	return n.nextPort
}

// Links are the connections of which at least one end is open, in the order of their client's address.
func (n *Network) Links() []*Link {
	n.mu.Lock()
	defer n.mu.Unlock()
	links := make([]*Link, 0, len(n.links))
	for l := range n.links {
		links = append(links, l)
	}
	sort.Slice(links, func(i, j int) bool { return links[i].From < links[j].From })
	return links
}
