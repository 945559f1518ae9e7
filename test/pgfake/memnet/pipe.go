package memnet

import (
	"io"
	"os"
	"sync"
	"syscall"
	"time"
)

// pipe is one direction of a connection: a bounded buffer between one writer and one reader. A full
// buffer blocks the writer, as a full socket does.
//
// It waits on a sync.Cond and on timers only, so that inside a testing/synctest bubble a blocked
// reader or writer counts as durably blocked and virtual time can pass.
type pipe struct {
	mu   sync.Mutex
	cond sync.Cond // signalled on every change of what is below

	chunks []chunk
	size   int // bytes in chunks
	limit  int // bytes that fit

	latency time.Duration // from write to the moment that the reader can see it
	stalled bool          // the reader sees nothing, neither bytes nor an end, until it is resumed
	budget  int64         // bytes that still pass before the wire is cut; negative: no cut

	readErr  error // what the reader gets once the buffer is empty; nil while the writer lives
	writeErr error // what the writer gets at once; nil while the reader lives
	refused  bool  // a write has met the closed reader
	closed   bool  // the reader's own end is closed: net.ErrClosed for it

	readBy, writeBy deadline
	passed          int64 // bytes written so far
}

type chunk struct {
	at time.Time // when the reader may see it; zero: at once
	b  []byte
	r  int // bytes of b that have been read
}

// deadline wakes the pipe when it passes.
type deadline struct {
	at    time.Time
	timer *time.Timer
}

func newPipe(limit int) *pipe {
	p := &pipe{limit: limit, budget: -1}
	p.cond.L = &p.mu
	return p
}

// wake is what timers call.
func (p *pipe) wake() {
	p.mu.Lock()
	p.cond.Broadcast()
	p.mu.Unlock()
}

func (p *pipe) setDeadline(d *deadline, at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	d.at = at
	if !at.IsZero() && !p.over(d) {
		d.timer = time.AfterFunc(time.Until(at), p.wake)
	}
	p.cond.Broadcast()
}

func (p *pipe) over(d *deadline) bool { return !d.at.IsZero() && !time.Now().Before(d.at) }

func (p *pipe) read(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		switch {
		case p.closed:
			return 0, errClosed
		case p.over(&p.readBy):
			return 0, os.ErrDeadlineExceeded
		case len(b) == 0:
			return 0, nil
		}
		if !p.stalled {
			if n := p.takeLocked(b); n > 0 {
				p.cond.Broadcast()
				return n, nil
			}
			if p.size == 0 && p.readErr != nil {
				return 0, p.readErr
			}
		}
		p.cond.Wait()
	}
}

// takeLocked copies what has arrived.
func (p *pipe) takeLocked(b []byte) int {
	n := 0
	for n < len(b) && len(p.chunks) > 0 {
		c := &p.chunks[0]
		if !c.at.IsZero() && time.Now().Before(c.at) {
			break
		}
		k := copy(b[n:], c.b[c.r:])
		n += k
		c.r += k
		p.size -= k
		if c.r < len(c.b) {
			break
		}
		if len(p.chunks) == 1 {
			c.b, c.r = c.b[:0], 0 // keep the space for the next write
			if cap(c.b) == 0 || !c.at.IsZero() {
				p.chunks = p.chunks[:0]
			}
			break
		}
		p.chunks = p.chunks[1:]
	}
	return n
}

// write returns cut = true when this write used up the budget: the caller then cuts both directions.
func (p *pipe) write(b []byte) (n int, cut bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		switch {
		case p.readErr != nil && p.readErr != io.EOF:
			return n, false, p.readErr // reset
		case p.readErr != nil:
			return n, false, errClosed
		case p.writeErr == syscall.EPIPE && !p.stalled && !p.refused:
			p.refused = true // TCP learns from its first write that the peer is gone
			return n + len(b), false, nil
		case p.writeErr != nil && !p.stalled:
			return n, false, p.writeErr
		case p.over(&p.writeBy):
			return n, false, os.ErrDeadlineExceeded
		case len(b) == 0:
			return n, false, nil
		}
		if room := p.limit - p.size; room > 0 {
			k := min(room, len(b))
			if p.budget >= 0 {
				k = int(min(int64(k), p.budget))
				p.budget -= int64(k)
			}
			p.putLocked(b[:k])
			n, b = n+k, b[k:]
			p.cond.Broadcast()
			if p.budget == 0 {
				return n, true, syscall.ECONNRESET
			}
			continue
		}
		p.cond.Wait()
	}
}

func (p *pipe) putLocked(b []byte) {
	var at time.Time
	if p.latency > 0 {
		at = time.Now().Add(p.latency)
		time.AfterFunc(p.latency, p.wake)
	}
	p.size += len(b)
	p.passed += int64(len(b))
	if k := len(p.chunks); k > 0 && p.chunks[k-1].at.Equal(at) {
		c := &p.chunks[k-1]
		if c.r > 0 && c.r == len(c.b) {
			c.b, c.r = c.b[:0], 0
		}
		c.b = append(c.b, b...)
		return
	}
	p.chunks = append(p.chunks, chunk{at: at, b: append([]byte(nil), b...)})
}

// end is an orderly close by the writer: the reader drains the buffer and then gets io.EOF.
func (p *pipe) end() { p.finish(io.EOF, nil, false) }

// abandon is the reader's close: what it has not read is gone and the writer cannot write on.
func (p *pipe) abandon() {
	p.finish(nil, syscall.EPIPE, true)
}

// reset ends the direction with an error on both sides; drop says whether the bytes under way are lost.
func (p *pipe) reset(drop bool) {
	p.mu.Lock()
	p.stalled = false
	p.mu.Unlock()
	p.finish(syscall.ECONNRESET, syscall.ECONNRESET, drop)
}

func (p *pipe) finish(readErr, writeErr error, drop bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.readErr == nil {
		p.readErr = readErr
	}
	if p.writeErr == nil {
		p.writeErr = writeErr
	}
	if drop {
		p.chunks, p.size = nil, 0
	}
	p.cond.Broadcast()
}
