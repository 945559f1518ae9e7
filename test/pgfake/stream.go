package pgfake

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"
	"golang.org/x/sync/errgroup"
)

const (
	// flushAt is how much a walsender collects before it writes.
	flushAt = 16 << 10
	// quiet is the least time between two keepalives that say the same. A real server's pace is that
	// of the network; here a client that answers each one would stop virtual time.
	quiet = 10 * time.Millisecond
)

// How a stream ends, other than by CopyDone. None but errFailed is told to the client, which sees
// what was written before and an EOF.
var (
	errPeerGone = errors.New("the client is gone")
	errTimeout  = errors.New("wal_sender_timeout")
	errShutdown = errors.New("the server is stopping and everything is confirmed")
	errFailed   = errors.New("the stream failed")
)

// walsender is one stream. The backend's goroutine reads the client's statuses, send's goroutine
// writes; what both use is guarded by s.mu.
type walsender struct {
	s       *Server
	c       *Conn
	slot    *slot
	history int // of the server when the stream began
	start   lsn // transactions whose commit record starts below are not sent
	wake    chan struct{}
	timeout time.Duration // wal_sender_timeout; 0: none

	// Of send's goroutine.
	next      int               // entry to decode next
	open      *Txn              // transaction that is being sent
	row       int               // its row to send next
	relations map[uint32]*shape // what Relation messages have told

	// Guarded by s.mu.
	sent      lsn // end of the last record that was decoded: what keepalives say
	told      lsn // the highest position that the client can know from this stream
	write     lsn
	flush     lsn
	lastReply time.Time
	pinged    bool // a reply was asked for and has not come
	asked     bool // the client asks for a keepalive
	copyDone  bool // the client wants to end the stream
	ended     bool // the client is gone
	failed    bool // the stream ended with an error of the server
	lastPing  struct {
		sent lsn
		at   time.Time
	}
	verdict verdict // what the judge remembers of this stream
}

func newWalsender(c *Conn, sl *slot, start lsn) *walsender {
	s := c.s
	return &walsender{
		s: s, c: c, slot: sl, history: s.history, start: start,
		wake:      make(chan struct{}, 1),
		timeout:   c.duration("wal_sender_timeout"),
		next:      s.wal.at(sl.restart),
		relations: make(map[uint32]*shape),
		sent:      sl.confirmed,
		told:      sl.confirmed,
		lastReply: time.Now(),
	}
}

// nudge makes send look again.
func (w *walsender) nudge() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// serve runs the stream until the client ends it (nil) or the connection is over (net.ErrClosed).
func (w *walsender) serve() error {
	c := w.c
	if err := c.nc.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	c.send(&pgproto3.CopyBothResponse{OverallFormat: 0})
	w.s.mu.Lock()
	w.keepaliveLocked(false) // the first one says confirmed_flush_lsn (FACTS E3)
	w.s.mu.Unlock()
	if err := c.flush(); err != nil {
		w.leave()
		return errors.Join(net.ErrClosed, err)
	}

	var group errgroup.Group
	group.Go(func() error {
		err := w.send()
		w.leave()
		if err != nil && !errors.Is(err, errFailed) {
			_ = c.nc.Close() // the reader below notices
		}
		return err
	})
	received := w.receive()
	sent := group.Wait()
	if err := errors.Join(received, sent); err != nil {
		return errors.Join(net.ErrClosed, err)
	}
	c.send(&pgproto3.CommandComplete{CommandTag: []byte("COPY 0")})
	c.send(&pgproto3.CommandComplete{CommandTag: []byte("START_REPLICATION")})
	return nil
}

// leave gives the slot back. Where the connection ends with the stream, forget lets it linger.
func (w *walsender) leave() {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	if w.c.stream != w {
		return
	}
	w.c.stream = nil
	w.s.judge.endedLocked(w)
	if w.copyDone || w.failed {
		w.slot.active = nil
	}
	w.s.cond.Broadcast()
}

// receive reads the client's side until CopyDone (nil) or the end of the connection.
func (w *walsender) receive() error {
	for {
		msg, err := w.c.be.Receive()
		if err != nil {
			w.gone()
			return errors.Join(errPeerGone, err)
		}
		switch msg := msg.(type) {
		case *pgproto3.CopyData:
			if len(msg.Data) == 34 && msg.Data[0] == 'r' {
				w.status(msg.Data)
			}
		case *pgproto3.CopyDone:
			w.s.mu.Lock()
			w.copyDone = true
			w.s.mu.Unlock()
			w.nudge()
			return nil
		case *pgproto3.Terminate:
			w.gone()
			return errPeerGone
		}
	}
}

func (w *walsender) gone() {
	w.s.mu.Lock()
	w.ended = true
	w.s.mu.Unlock()
	_ = w.c.nc.Close() // a blocked write ends
	w.nudge()
}

// status takes a standby status update: 'r', write, flush, apply, time, reply requested.
func (w *walsender) status(b []byte) {
	s := w.s
	write, flush := lsn(binary.BigEndian.Uint64(b[1:])), lsn(binary.BigEndian.Uint64(b[9:]))
	apply := lsn(binary.BigEndian.Uint64(b[17:]))
	s.mu.Lock()
	if w.c.stream != w { // it has ended with an error; the client has not seen that yet
		s.mu.Unlock()
		return
	}
	s.judge.statusLocked(w, write, flush, apply)
	w.write, w.flush = write, max(w.flush, flush)
	w.lastReply, w.pinged = time.Now(), false
	w.asked = w.asked || b[33] != 0
	if flush != 0 {
		w.slot.confirm(flush)
	}
	s.cond.Broadcast()
	s.mu.Unlock()
	if w.timeout > 0 {
		_ = w.c.nc.SetWriteDeadline(time.Now().Add(w.timeout))
	}
	w.nudge()
}

// send writes the stream until the client ends it (nil) or one of the errors above does.
func (w *walsender) send() error {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		wait, err := w.step()
		switch {
		case errors.Is(err, errShutdown):
			w.c.send(&pgproto3.CommandComplete{CommandTag: []byte("COPY 0")})
			return errors.Join(err, w.c.flush())
		case errors.Is(err, errFailed):
			return errors.Join(err, w.c.ready())
		case err == io.EOF:
			return w.c.flush()
		case err != nil:
			return err
		}
		if len(w.c.out) > 0 && (wait > 0 || len(w.c.out) >= flushAt) {
			if err := w.push(); err != nil {
				return err
			}
			continue // a status may have come meanwhile
		}
		if wait == 0 {
			continue
		}
		timer.Reset(wait)
		select {
		case <-w.wake:
		case <-timer.C:
		}
	}
}

// push writes what is collected; it blocks while the client does not read, until wal_sender_timeout.
func (w *walsender) push() error {
	w.s.mu.Lock()
	var by time.Time
	if w.timeout > 0 {
		by = w.lastReply.Add(w.timeout)
	}
	ended := w.ended
	w.s.mu.Unlock()
	if ended {
		return errPeerGone
	}
	if err := w.c.nc.SetWriteDeadline(by); err != nil {
		return err
	}
	err := w.c.flush()
	if isTimeout(err) {
		return errTimeout
	}
	return err
}
