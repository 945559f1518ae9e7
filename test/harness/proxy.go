package harness

import (
	"net"
	"sync"
	"testing"
	"time"
)

// Proxy passes TCP connections on to one address and can spoil them: hold everything back, cut
// them, refuse new ones, delay each chunk, let only so many bytes through. A connection that is held back while one side leaves is
// what a half-open connection looks like to the other. It ends with the test.
type Proxy struct {
	listener net.Listener
	ended    sync.WaitGroup // one count per goroutine

	mu struct {
		sync.Mutex
		changed *sync.Cond
		target  string
		paused  bool
		refuse  bool
		closed  bool
		delay   time.Duration
		rate    int                       // bytes a second of each direction of each connection; 0: no limit
		open    map[*net.TCPConn]struct{} // both halves of every pair
	}
}

const chunk = 32 << 10 // bytes that are read, delayed and written at a time

// NewProxy listens on a free port of 127.0.0.1. Until To is called it refuses connections.
func NewProxy(t testing.TB) *Proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{listener: listener}
	p.mu.changed = sync.NewCond(&p.mu)
	p.mu.open = map[*net.TCPConn]struct{}{}
	p.ended.Go(p.accept)
	t.Cleanup(func() {
		p.set(func() { p.mu.closed = true })
		listener.Close()
		p.Cut()
		p.ended.Wait()
	})
	return p
}

// Addr is the host:port that clients connect to.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// To sets where new connections are passed on to.
func (p *Proxy) To(target string) { p.set(func() { p.mu.target = target }) }

// Pause holds back every byte in both directions; connections stay open, new ones are taken.
func (p *Proxy) Pause() { p.set(func() { p.mu.paused = true }) }

// Resume lets held-back bytes go on, and takes connections again after Refuse.
func (p *Proxy) Resume() { p.set(func() { p.mu.paused, p.mu.refuse = false, false }) }

// Refuse resets every new connection at once. Open ones stay: see Cut.
func (p *Proxy) Refuse() { p.set(func() { p.mu.refuse = true }) }

// Delay holds each chunk of at most 32 KiB back for d, in both directions; 0 ends it.
func (p *Proxy) Delay(d time.Duration) { p.set(func() { p.mu.delay = d }) }

// Rate lets so many bytes a second through, in each direction of each connection; 0 ends it.
func (p *Proxy) Rate(bytes int) { p.set(func() { p.mu.rate = bytes }) }

// Cut resets every open connection, so that both sides get an error and no orderly end.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for conn := range p.mu.open {
		reset(conn)
	}
	clear(p.mu.open)
	p.mu.changed.Broadcast()
}

// Connections is the number of pairs that are open.
func (p *Proxy) Connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.mu.open) / 2
}

func (p *Proxy) set(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
	p.mu.changed.Broadcast()
}

// reset closes with RST in place of FIN, and drops what is still queued.
func reset(conn *net.TCPConn) {
	conn.SetLinger(0)
	conn.Close()
}

func (p *Proxy) accept() {
	for {
		conn, err := p.listener.Accept()
		if err != nil {
			return // closed by the test's end
		}
		p.ended.Go(func() { p.connect(conn.(*net.TCPConn)) })
	}
}

func (p *Proxy) connect(client *net.TCPConn) {
	p.mu.Lock()
	refuse, target := p.mu.refuse || p.mu.closed || p.mu.target == "", p.mu.target
	p.mu.Unlock()
	if refuse {
		reset(client)
		return
	}
	conn, err := net.DialTimeout("tcp", target, 5*time.Second)
	if err != nil {
		reset(client)
		return
	}
	server := conn.(*net.TCPConn)
	p.mu.Lock()
	if p.mu.closed {
		p.mu.Unlock()
		reset(client)
		reset(server)
		return
	}
	p.mu.open[client], p.mu.open[server] = struct{}{}, struct{}{}
	p.mu.Unlock()
	p.ended.Go(func() { p.pass(client, server) })
	p.pass(server, client)
}

// pass copies one direction. The end of one direction ends the pair: no protocol that is tested here
// uses a connection that is closed on one side.
func (p *Proxy) pass(from, to *net.TCPConn) {
	buf := make([]byte, chunk)
	for {
		n, err := from.Read(buf)
		if !p.hold(from, n) {
			break
		}
		if n > 0 {
			if _, werr := to.Write(buf[:n]); werr != nil {
				break
			}
		}
		if err != nil {
			break
		}
	}
	p.mu.Lock()
	delete(p.mu.open, from)
	delete(p.mu.open, to)
	p.mu.Unlock()
	from.Close()
	to.Close()
}

// hold waits before n bytes go on as Pause, Delay and Rate say; false: the connection was cut meanwhile.
func (p *Proxy) hold(conn *net.TCPConn, n int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	delay := p.mu.delay
	if p.mu.rate > 0 {
		delay += time.Second * time.Duration(n) / time.Duration(p.mu.rate)
	}
	if delay > 0 {
		p.mu.Unlock()
		time.Sleep(delay)
		p.mu.Lock()
	}
	for {
		if _, open := p.mu.open[conn]; !open {
			return false
		}
		if !p.mu.paused {
			return true
		}
		p.mu.changed.Wait()
	}
}
