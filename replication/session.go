package replication

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"golang.org/x/sync/errgroup"

	"walrelay/checkpoint"
	"walrelay/decoder"
	"walrelay/internal/postgres"
	"walrelay/outbox"
)

const (
	// The bounds of what is on its way. A row holds its slot until it is settled in the table, and its
	// bytes until Kafka has it; one row larger than the bound goes alone. A backlog fills the window
	// whatever its size, and a large one falls out of the processor's cache before Kafka's answer comes:
	// 2 MiB drains as fast as 8 at a seventh less CPU and 15 MiB less memory. With acknowledgements after
	// 20 ms it carries 100 MiB a second.
	windowRows  = 16384
	windowBytes = 2 << 20

	silence   = 5 * time.Second        // after this long without a message the server is asked for one
	grace     = 5 * time.Second        // what Kafka gets when the server wants to stop (H24)
	drainTime = 10 * time.Second       // what a session that ends for a reason of its own gives to what is in flight
	finish    = time.Second            // what a stopping session gives to the rest of the transaction that it is in
	replyPace = 100 * time.Millisecond // a server that stops asks as fast as it is answered

	// floodSize reply requests in a row for one position while something is unconfirmed: we write a
	// status every second, so nothing but a stopping server asks like that.
	floodSize = 5
)

// session is one life of the stream: one replication connection, one SQL connection, one decoder, one
// tracker. It is made, it runs, it is thrown away.
type session struct {
	*Source
	sql     *pgx.Conn
	wire    *wire
	conn    net.Conn
	pid     int32 // of our walsender
	decoder *decoder.Decoder
	tracker *checkpoint.Tracker
	room    *checkpoint.Waiter
	history history
	server  postgres.Server
	began   pglogrepl.LSN // the server's WAL position when the session started

	lastSettled checkpoint.Row // of the last settle; of the settle goroutine

	// Of the stream's goroutine.
	resume   resume
	begin    decoder.Begin
	position outbox.Position // of the next wire insert
	last     outbox.Position // of the last event that was handed over
	lastRow  checkpoint.Row
	received pglogrepl.LSN
	stop     <-chan struct{}
	leaving  time.Time // when stop was noticed; zero before
	active   time.Time // when the goroutine last ran
	heard    time.Time
	told     time.Time
	fills    uint64
	owes     bool          // a reply was asked for and not given yet
	idle     pglogrepl.LSN // of the last keepalive
	handed   bool          // events were handed over since the last hurry
	unsent   int           // rows that the tracker holds and Kafka was not given
	result   error         // why the session ended, behind errEnded
	flood    struct {
		end   pglogrepl.LSN
		count int
		until time.Time // end of Kafka's grace; zero while no flood was seen
	}

	wake       atomic.Bool           // look up from the stream: something below has changed
	woken      chan struct{}         // the same, for a goroutine that does not read
	failure    atomic.Pointer[error] // first event that Kafka did not take
	sqlFailure atomic.Pointer[error] // why settling and watching have ended
	trusted    atomic.Bool           // the last watch saw every row of the table published: keepalives mean something
	probe      atomic.Uint64         // token whose acknowledgement is timed; 0: none
	probeFrom  atomic.Int64          // commit time of its transaction, nanoseconds since 1970
	fresh      atomic.Uint64         // first token of a transaction that committed after the session began
}

// prepare reads what the stream starts from, on the connection that will stream.
func (x *session) prepare(ctx context.Context, repl *pgconn.PgConn, v postgres.Server, id pglogrepl.IdentifySystemResult) error {
	x.server, x.began, x.pid = v, id.XLogPos, int32(repl.PID())
	x.history = history{systemID: id.SystemID, timeline: id.Timeline, slot: x.cfg.Slot}
	rows, err := querySimple(ctx, repl, fmt.Sprintf("/* walrelay:confirmed */ SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = '%s'", x.cfg.Slot))
	if err != nil {
		return fmt.Errorf("read what the slot has confirmed: %w", err)
	}
	if len(rows) != 1 {
		return fmt.Errorf("slot %q is gone", x.cfg.Slot)
	}
	confirmed, err := pglogrepl.ParseLSN(rows[0][0])
	if err != nil {
		return fmt.Errorf("slot %q: confirmed_flush_lsn %q: %w", x.cfg.Slot, rows[0][0], err)
	}
	carried, err := x.carried(ctx, repl)
	if err != nil {
		return err
	}
	x.resume = newResume(carried, confirmed)
	x.tracker = checkpoint.NewTracker(checkpoint.Options{
		Rows: windowRows, Start: confirmed, Settles: x.After != checkpoint.Keep, Carried: carried,
	})
	if x.resume.whole {
		x.tracker.Hold()
	}
	x.room = x.tracker.NewWaiter()
	x.woken = make(chan struct{}, 1)
	x.trusted.Store(true) // ensure has just seen it
	x.decoder = decoder.New(x.Table, x.Columns, x.rowLimit)
	x.position.Timeline = id.Timeline
	return nil
}

// carried is what the sessions before are known to have published, as far as this server shares their
// history.
func (x *session) carried(ctx context.Context, repl *pgconn.PgConn) (checkpoint.Carried, error) {
	if x.past.tracker == nil {
		return checkpoint.Carried{}, nil
	}
	c, why, err := bound(x.past.history, x.history, x.past.tracker.Carried(), func() (pglogrepl.LSN, error) {
		return forkPoint(ctx, repl, x.past.history.timeline, x.history.timeline)
	})
	if err != nil {
		return c, err
	}
	if why == "" && beyond(c, x.began) {
		c, why = checkpoint.Carried{}, fmt.Sprintf("its WAL ends at %s, before what was published last (%s)", x.began, c.End)
	}
	if why != "" {
		x.log.Warn("the server has another history: going on from what its slot has confirmed", "slot", x.cfg.Slot, "reason", why)
	}
	return x.resettle(ctx, c)
}

// forkPoint is where the line of timelines that leads to "to" left timeline "from".
func forkPoint(ctx context.Context, repl *pgconn.PgConn, from, to int32) (pglogrepl.LSN, error) {
	rows, err := querySimple(ctx, repl, fmt.Sprintf("TIMELINE_HISTORY %d", to))
	if err != nil {
		return 0, fmt.Errorf("read the history of timeline %d: %w", to, err)
	}
	if len(rows) != 1 || len(rows[0]) != 2 {
		return 0, fmt.Errorf("read the history of timeline %d: unexpected answer", to)
	}
	for line := range strings.Lines(rows[0][1]) {
		var timeline int32
		var lsn string
		if n, _ := fmt.Sscan(line, &timeline, &lsn); n == 2 && timeline == from {
			return pglogrepl.ParseLSN(lsn)
		}
	}
	return 0, nil // another line altogether: nothing is shared
}

// start begins to stream. The connection is taken from pgconn first: from here on the session frames
// the messages itself, many to a read.
func (x *session) start(repl *pgconn.PgConn) error {
	ctx, cancel := context.WithTimeout(context.Background(), postgres.ConnectTimeout)
	defer cancel()
	if err := repl.SyncConn(ctx); err != nil {
		return fmt.Errorf("before START_REPLICATION: %w", err)
	}
	hijacked, err := repl.Hijack()
	if err != nil {
		return fmt.Errorf("before START_REPLICATION: %w", err)
	}
	if x.conn, err = aside(hijacked.Conn); err != nil {
		hijacked.Conn.Close()
		return err
	}
	x.wire = newWire(x.conn, x.rowLimit+xlogHeaderLen)
	x.wire.before = x.hurry
	sql := fmt.Sprintf(`START_REPLICATION SLOT "%s" LOGICAL 0/0 (proto_version '1', publication_names '%s')`,
		x.cfg.Slot, strings.ReplaceAll(pgx.Identifier{x.cfg.Publication}.Sanitize(), "'", "''"))
	err = x.wire.start(sql, time.Now().Add(slotTimeout), x.notice)
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.Code == "55000" {
		return x.slotLost(err)
	}
	return err
}

// slotLost says what 55000 at START_REPLICATION means. Its text differs from version to version.
func (x *session) slotLost(err error) error {
	return &postgres.ModeError{
		Reason: fmt.Sprintf("slot %q cannot be read any more", x.cfg.Slot),
		Remedy: fmt.Sprintf("SELECT pg_drop_replication_slot('%s'), publish or mark the rows that are left (%s), then start walrelay again: it creates a new slot", x.cfg.Slot, x.unmarkedSQL()),
		Err:    err,
	}
}

func (x *session) close() {
	if x.conn != nil {
		x.conn.Close()
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	x.sql.Close(ctx)
}

// run streams and settles until one of the two ends. When the SQL connection fails, the stream's
// goroutine is told, so that it can confirm what is settled before it leaves.
func (x *session) run(soft, hard context.Context) error {
	defer context.AfterFunc(hard, func() { x.conn.Close() })()
	defer context.AfterFunc(soft, x.interrupt)()

	settling, stop := context.WithCancel(hard)
	var group errgroup.Group
	group.Go(func() error {
		if err := x.settleLoop(settling); err != nil && settling.Err() == nil {
			x.sqlFailure.CompareAndSwap(nil, &err)
			x.interrupt()
		}
		return nil
	})
	err := x.stream(soft.Done(), hard)
	stop()
	_ = group.Wait() // it has said what it had to say through sqlFailure
	return err
}

// interrupt makes the stream's goroutine look up from a read. The flag is set before the deadline, and
// the goroutine looks at the flag after it has set a deadline of its own, so none of the two is lost.
func (x *session) interrupt() {
	x.wake.Store(true)
	select {
	case x.woken <- struct{}{}:
	default:
	}
	x.conn.SetReadDeadline(time.Unix(1, 0))
}

// Acked is called on Kafka's promise goroutine.
func (x *session) Acked(token uint64, err error) {
	if err == nil {
		if token == x.probe.Load() {
			x.metrics.latency.Observe(time.Since(time.Unix(0, x.probeFrom.Load())).Seconds())
			x.probe.Store(0)
		}
		if err = x.tracker.Done(token); err == nil {
			return
		}
	}
	if x.failure.CompareAndSwap(nil, &err) {
		x.interrupt()
	}
}

func (x *session) notice(n *pgconn.Notice) {
	x.log.Warn("PostgreSQL says", "severity", n.Severity, "message", n.Message, "detail", n.Detail)
}

// endedSilently: a walsender that gave up on us, or on the decoding of something huge, closes the
// connection without a word. One that had not read our last status by then resets it.
func endedSilently(err error) bool {
	for _, end := range []error{io.EOF, io.ErrUnexpectedEOF, syscall.ECONNRESET, syscall.EPIPE, errWalsender} {
		if errors.Is(err, end) {
			return true
		}
	}
	return false
}

// serverStopping: administrator shutdown, a server that starts or stops, or one that is gone.
func serverStopping(err error) bool {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code == "57P01" || pg.Code == "57P02" || pg.Code == "57P03"
	}
	return false
}

// keepalive layout: 'k', WAL end, send time, reply requested (PostgreSQL docs, Streaming Replication
// Protocol).
const keepaliveLen = 1 + 8 + 8 + 1

func parseKeepalive(b []byte) (end pglogrepl.LSN, reply bool, err error) {
	if len(b) < keepaliveLen {
		return 0, false, fmt.Errorf("keepalive of %d bytes: the stream is broken", len(b))
	}
	return pglogrepl.LSN(binary.BigEndian.Uint64(b[1:])), b[17] != 0, nil
}
