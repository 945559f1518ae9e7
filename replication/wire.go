package replication

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

const (
	readBuffer    = 256 << 10        // one read system call may bring several hundred messages
	statusTimeout = 10 * time.Second // bound of a write of 39 bytes; the kernel's buffer takes them at once unless the peer is gone
	headerLen     = 5                // type byte and length of every message
	xlogHeaderLen = 1 + 8 + 8 + 8    // 'w', start, end, send time
	sendTimeAt    = 1 + 8 + 8        // in the header of XLogData

	// A transaction that is sent later than this after its commit belongs to a backlog.
	behindAfter = 100 * time.Millisecond

	// A walsender sends each message by itself, so a reader that is faster than it pays a system call
	// and a wake-up for every row, and so does Kafka for its small requests. In a backlog the reader
	// lets messages pile up: so many pauses at most before what came is handled.
	gatherPause  = time.Millisecond
	gatherPauses = 5
)

// errTick is returned by a read whose deadline passed. Nothing is lost: what had arrived of a message
// stays in the buffer.
var errTick = errors.New("read deadline passed")

// wire frames the messages of a replication connection after it was taken from pgconn. One read
// system call brings as many messages as the kernel holds, and next hands them out one by one without
// copying. Only the session's goroutine uses it, for reads and writes alike.
type wire struct {
	conn   net.Conn
	buf    []byte
	r, w   int // unread bytes are buf[r:w]
	limit  int // a message longer than this is not buffered; see large
	fills  uint64
	status [headerLen + statusLen]byte

	late   int64                  // a message of this transaction that is sent later belongs to a backlog; microseconds on the server's clock
	behind bool                   // the last message did
	gather func(p []byte) (n int) // pauses, and reads what came meanwhile
	before func()                 // is called before a read that may wait
}

func newWire(conn net.Conn, limit int) *wire {
	w := &wire{conn: conn, buf: make([]byte, readBuffer), limit: limit, before: func() {}}
	if s, ok := conn.(interface{ gather([]byte) int }); ok {
		w.gather = s.gather
	} else {
		w.gather = func([]byte) int { time.Sleep(gatherPause); return 0 }
	}
	return w
}

// committed notes the commit time of the transaction whose messages come now, and sent the time at
// which one of them was sent. Both are of the server's clock, so that ours does not matter.
func (w *wire) committed(at time.Time) { w.late = at.Add(behindAfter).Sub(epoch).Microseconds() }

func (w *wire) sent(xlog []byte) {
	w.behind = int64(binary.BigEndian.Uint64(xlog[sendTimeAt:])) > w.late
}

// next returns the type and body of the next message. The body is valid until the next call. A body
// longer than the limit is not read: large is true, n is its length, and the caller takes it from
// body with readLarge.
func (w *wire) next() (typ byte, body []byte, large int, err error) {
	if err := w.need(headerLen); err != nil {
		return 0, nil, 0, err
	}
	typ = w.buf[w.r]
	n := int(int32(binary.BigEndian.Uint32(w.buf[w.r+1:]))) - 4
	if n < 0 {
		return 0, nil, 0, fmt.Errorf("message %q has length %d: the stream is broken", typ, n+4)
	}
	if n > w.limit {
		w.r += headerLen
		return typ, nil, n, nil
	}
	if err := w.need(headerLen + n); err != nil {
		return 0, nil, 0, err
	}
	body = w.buf[w.r+headerLen : w.r+headerLen+n]
	w.r += headerLen + n
	return typ, body, 0, nil
}

// need makes n unread bytes available at buf[r:].
func (w *wire) need(n int) error {
	if w.w-w.r >= n {
		return nil
	}
	if w.r == w.w {
		w.r, w.w = 0, 0
		if len(w.buf) > readBuffer && n <= readBuffer {
			w.buf = make([]byte, readBuffer) // a large row is over: give its memory back
		}
	}
	if len(w.buf)-w.r < n {
		to := w.buf
		if n > len(to) {
			to = make([]byte, max(n, 2*readBuffer))
		}
		w.w = copy(to, w.buf[w.r:w.w])
		w.r, w.buf = 0, to
	}
	for w.w-w.r < n {
		if err := w.fill(); err != nil {
			return err
		}
	}
	return nil
}

func (w *wire) fill() error {
	if w.behind {
		if n := w.gather(w.buf[w.w:]); n > 0 {
			w.w += n
			w.fills++
			return nil
		}
	}
	w.before()
	n, err := w.conn.Read(w.buf[w.w:])
	w.w += n
	if n > 0 {
		w.fills++
		return nil
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return errTick
	}
	if err == nil {
		err = io.ErrNoProgress
	}
	return err
}

// body reads a message that is longer than the limit, at most n bytes, through the same buffer.
// tick is called whenever the read deadline passes, so that the status goes out on time meanwhile.
type body struct {
	wire *wire
	tick func() error
}

func (b body) Read(p []byte) (int, error) {
	w := b.wire
	for w.r == w.w {
		w.r, w.w = 0, 0
		if err := w.fill(); errors.Is(err, errTick) {
			if err := b.tick(); err != nil {
				return 0, err
			}
		} else if err != nil {
			return 0, err
		}
	}
	n := copy(p, w.buf[w.r:w.w])
	w.r += n
	return n, nil
}

// start sends START_REPLICATION as a simple query and reads up to the answer that opens the stream.
func (w *wire) start(sql string, deadline time.Time, notice func(*pgconn.Notice)) error {
	msg, err := (&pgproto3.Query{String: sql}).Encode(nil)
	if err != nil {
		return fmt.Errorf("encode START_REPLICATION: %w", err)
	}
	if err := w.write(msg); err != nil {
		return fmt.Errorf("send START_REPLICATION: %w", err)
	}
	if err := w.conn.SetReadDeadline(deadline); err != nil {
		return err
	}
	for {
		typ, body, _, err := w.next()
		if errors.Is(err, errTick) {
			return fmt.Errorf("START_REPLICATION was not answered: %w", os.ErrDeadlineExceeded)
		}
		if err != nil {
			return fmt.Errorf("START_REPLICATION: %w", err)
		}
		switch typ {
		case 'W': // CopyBothResponse
			return nil
		case 'E':
			return serverError(body)
		case 'N':
			if n, err := serverNotice(body); err == nil {
				notice(n)
			}
		case 'S': // ParameterStatus
		default:
			return fmt.Errorf("START_REPLICATION was answered by message %q: the stream is broken", typ)
		}
	}
}

// serverError turns an ErrorResponse into the error that pgconn would return.
func serverError(body []byte) error {
	var m pgproto3.ErrorResponse
	if err := m.Decode(body); err != nil {
		return fmt.Errorf("decode the server's error: %w", err)
	}
	return pgconn.ErrorResponseToPgError(&m)
}

func serverNotice(body []byte) (*pgconn.Notice, error) {
	var m pgproto3.NoticeResponse
	if err := m.Decode(body); err != nil {
		return nil, err
	}
	return (*pgconn.Notice)(pgconn.ErrorResponseToPgError((*pgproto3.ErrorResponse)(&m))), nil
}

// statusLen is the length of a standby status update: 'r', three positions, a time and a flag
// (PostgreSQL docs, Streaming Replication Protocol).
const statusLen = 1 + 8 + 8 + 8 + 8 + 1

// epoch is the zero of PostgreSQL's clock.
var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// sendStatus tells the server that everything below flush is safe, and that received has been read.
// With reply set the server answers with a keepalive at once.
func (w *wire) sendStatus(received, flush pglogrepl.LSN, now time.Time, reply bool) error {
	b := w.status[:]
	b[0] = 'd'
	binary.BigEndian.PutUint32(b[1:], 4+statusLen)
	b[5] = 'r'
	binary.BigEndian.PutUint64(b[6:], uint64(max(received, flush)))
	binary.BigEndian.PutUint64(b[14:], uint64(flush))
	binary.BigEndian.PutUint64(b[22:], uint64(flush))
	binary.BigEndian.PutUint64(b[30:], uint64(now.Sub(epoch).Microseconds()))
	b[38] = 0
	if reply {
		b[38] = 1
	}
	return w.write(b)
}

// sendCopyDone asks the server to end the stream.
func (w *wire) sendCopyDone() error { return w.write([]byte{'c', 0, 0, 0, 4}) }

func (w *wire) write(b []byte) error {
	if err := w.conn.SetWriteDeadline(time.Now().Add(statusTimeout)); err != nil {
		return err
	}
	_, err := w.conn.Write(b)
	return err
}
