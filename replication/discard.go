package replication

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
)

// Discarded is what a null reader has seen of a stream.
type Discarded struct {
	Inserts     int
	Bytes       int64     // of the pgoutput messages
	First, Last time.Time // of the first and the last insert
}

// Discard reads a slot through the connection code of a session and throws the messages away until n
// inserts have passed: what is left of a relay that does nothing, and so the measure of one that does
// something. It sends a status as often as a session and confirms what it has read, so that the server
// has the same work. It takes no lock, settles nothing, and needs a slot and a publication that are
// there. o.Publisher is not used.
func Discard(ctx context.Context, o Options, n int) (Discarded, error) {
	s, err := New(o)
	if err != nil {
		return Discarded{}, err
	}
	x := &session{Source: s}
	repl, err := connectReplication(ctx, s.Outbox.Database, minSenderTimeout, func(p *pgconn.Notice) { x.notice(p) })
	if err != nil {
		return Discarded{}, err
	}
	if err := x.start(repl); err != nil {
		closeReplication(repl)
		return Discarded{}, err
	}
	defer x.conn.Close()
	defer context.AfterFunc(ctx, func() { x.conn.Close() })()
	r := nullReader{x: x, wanted: n}
	err = r.run()
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return r.seen, err
}

// nullReader counts the inserts of a stream.
type nullReader struct {
	x      *session
	wanted int
	seen   Discarded
	end    pglogrepl.LSN // of the last commit
}

func (r *nullReader) run() error {
	if err := r.status(); err != nil {
		return err
	}
	for r.seen.Inserts < r.wanted {
		typ, msg, large, err := r.x.wire.next()
		switch {
		case errors.Is(err, errTick):
			err = r.status()
		case err != nil:
			err = fmt.Errorf("read the stream: %w", err)
		case large > 0:
			err = r.skip(large)
		default:
			err = r.count(typ, msg)
		}
		if err != nil {
			return err
		}
	}
	return r.status()
}

// count looks at the first byte of a pgoutput message and no further, but for the end of a commit.
func (r *nullReader) count(typ byte, msg []byte) error {
	switch {
	case typ == 'E':
		return fmt.Errorf("stream: %w", serverError(msg))
	case typ != 'd' || len(msg) <= xlogHeaderLen || msg[0] != 'w':
		return nil
	}
	body := msg[xlogHeaderLen:]
	r.x.wire.sent(msg)
	switch body[0] {
	case 'B':
		if len(body) >= commitTime+8 {
			r.x.wire.committed(epoch.Add(time.Duration(binary.BigEndian.Uint64(body[commitTime:])) * time.Microsecond))
		}
	case 'I':
		r.insert(len(body))
	case 'C':
		if len(body) >= commitEnd+8 {
			r.end = pglogrepl.LSN(binary.BigEndian.Uint64(body[commitEnd:]))
		}
	}
	return nil
}

// commitTime is where the time stands in a Begin: behind 'B' and the final LSN.
const commitTime = 1 + 8

// commitEnd is where the end LSN stands in a Commit: behind 'C', the flags and the commit's own LSN.
const commitEnd = 1 + 1 + 8

func (r *nullReader) insert(size int) {
	r.seen.Bytes += int64(size)
	if r.seen.Inserts++; r.seen.Inserts == 1 {
		r.seen.First = time.Now()
	}
	if r.seen.Inserts == r.wanted {
		r.seen.Last = time.Now()
	}
}

// skip throws away a message that is longer than the buffer's limit. Only rows are that long.
func (r *nullReader) skip(n int) error {
	if _, err := io.CopyN(io.Discard, body{r.x.wire, r.status}, int64(n)); err != nil {
		return fmt.Errorf("read the stream: %w", err)
	}
	r.insert(n)
	return nil
}

// status confirms what was read and sets the deadline of the next status.
func (r *nullReader) status() error {
	now := time.Now()
	if err := r.x.wire.sendStatus(r.end, r.end, now, false); err != nil {
		return fmt.Errorf("send status: %w", err)
	}
	return r.x.conn.SetReadDeadline(now.Add(r.x.cfg.StatusInterval))
}
