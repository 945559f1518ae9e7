package memnet

import (
	"syscall"
	"time"
)

// Direction is one of the two ways of a connection.
type Direction uint8

const (
	ToServer Direction = iota // from the side that dialled to the side that listens
	ToClient
)

// Link is one connection as a fault sees it. Every method may be called at any time by any goroutine.
type Link struct {
	network  *Network
	From, To string // addresses of the side that dialled and of the side that listens

	toServer, toClient *pipe
	open               int // ends that are not closed yet; guarded by network.mu
}

// Reset breaks the connection at once: both sides get ECONNRESET and the bytes under way are lost.
func (l *Link) Reset() {
	l.toServer.reset(true)
	l.toClient.reset(true)
}

// CutAfter breaks the connection once n more bytes have passed in that direction. These n bytes still
// arrive; what is under way in the other direction is lost.
func (l *Link) CutAfter(d Direction, n int64) {
	p := l.pipe(d)
	p.mu.Lock()
	p.budget = n
	p.mu.Unlock()
	if n == 0 {
		l.cut(p)
	}
}

func (l *Link) cut(after *pipe) {
	after.reset(false)
	if after == l.toServer {
		l.toClient.reset(true)
	} else {
		l.toServer.reset(true)
	}
}

// Stall makes the connection half open: what is written is held back, and neither side learns
// anything of the other, not even its end, until Resume.
func (l *Link) Stall() { l.stall(true) }

// Resume ends a Stall; what was held back arrives.
func (l *Link) Resume() { l.stall(false) }

func (l *Link) stall(on bool) {
	for _, p := range []*pipe{l.toServer, l.toClient} {
		p.mu.Lock()
		p.stalled = on
		p.cond.Broadcast()
		p.mu.Unlock()
	}
}

// SetLatency delays what is written from now on, each way.
func (l *Link) SetLatency(d time.Duration) {
	for _, p := range []*pipe{l.toServer, l.toClient} {
		p.mu.Lock()
		p.latency = d
		p.mu.Unlock()
	}
}

// SetBuffer sets how many bytes fit into that direction before its writer blocks.
func (l *Link) SetBuffer(d Direction, bytes int) {
	p := l.pipe(d)
	p.mu.Lock()
	p.limit = bytes
	p.cond.Broadcast()
	p.mu.Unlock()
}

// Passed is the number of bytes written in that direction so far.
func (l *Link) Passed(d Direction) int64 {
	p := l.pipe(d)
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.passed
}

func (l *Link) pipe(d Direction) *pipe {
	if d == ToServer {
		return l.toServer
	}
	return l.toClient
}

// closed notes that one end was closed by its owner.
func (l *Link) closed() {
	l.network.mu.Lock()
	defer l.network.mu.Unlock()
	if l.open--; l.open == 0 {
		delete(l.network.links, l)
	}
}

// errRefused is what a dialler gets where nobody listens.
const errRefused = syscall.ECONNREFUSED
