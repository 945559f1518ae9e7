package replication

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/jackc/pglogrepl"

	"walrelay/checkpoint"
	"walrelay/decoder"
	"walrelay/internal/postgres"
	"walrelay/internal/source"
	"walrelay/outbox"
)

// stream reads, publishes and confirms. It is the only goroutine that touches the replication
// connection.
func (x *session) stream(stop <-chan struct{}, hard context.Context) error {
	now := time.Now()
	x.active, x.heard, x.stop = now, now, stop
	x.update(func(st *State) {
		st.Phase, st.Since, st.Heard, st.Told, st.tracker = PhaseStreaming, now, now, now, x.tracker
	})
	x.log.Info("streaming", "slot", x.cfg.Slot, "publication", x.cfg.Publication, "lsn", x.tracker.Confirmable().String())
	err := x.tick()
	for err == nil {
		err = x.step()
	}
	var poison *source.PoisonError
	switch {
	case errors.Is(err, errEnded):
		return x.result
	case hard.Err() != nil:
		return hard.Err()
	case errors.As(err, &poison):
		// What came before is published and settled first, so that the event is the first of what is left.
		return errors.Join(err, x.drain(drainTime))
	}
	return err
}

// step takes one message, or whatever else is due.
func (x *session) step() error {
	if x.wake.Load() {
		if err := x.lookUp(); err != nil {
			return err
		}
	}
	if !x.leaving.IsZero() && (!x.tracker.InTransaction() || time.Since(x.leaving) > finish) {
		return x.leave()
	}
	if !x.hasRoom() {
		if rows, _ := x.tracker.Room(); rows == 0 && x.resume.whole {
			return errTooMany // what is held leaves with the position, not before
		}
		return x.waitFor(x.hasRoom, nil)
	}
	typ, msg, large, err := x.wire.next()
	if errors.Is(err, errTick) {
		return x.tick()
	}
	if err != nil {
		return fmt.Errorf("read the stream: %w", err)
	}
	if err := x.lease(); err != nil {
		return err
	}
	if large > 0 {
		return x.readLarge(typ, large)
	}
	return x.handle(typ, msg)
}

// errEnded ends the loop of a session that has come to its end, good or bad: the result has the reason.
var errEnded = errors.New("the session has ended")

// lookUp is what the goroutine does when something other than a message wants its attention.
func (x *session) lookUp() error {
	x.wake.Store(false)
	if err := x.fault(); err != nil {
		x.result = err
		return errEnded
	}
	select {
	case <-x.stop:
		if x.leaving.IsZero() {
			x.leaving = time.Now()
		}
	default:
	}
	return x.setDeadline() // the interrupt has moved it
}

// leave ends the session in order. Only whole transactions can be confirmed, so it is called between
// two of them where one ends soon: what is acknowledged of an open one is sent again by the next process.
func (x *session) leave() error {
	x.log.Info("stopping: waiting for what is in flight", "in_flight", x.tracker.InFlight(), "unsettled", x.tracker.Unsettled())
	x.result = x.drain(0)
	return errEnded
}

// fault is what makes it pointless to go on: an event that Kafka did not take, or the end of the SQL
// connection. In the second case what is settled is confirmed first.
func (x *session) fault() error {
	if f := x.failure.Load(); f != nil {
		alone := x.past.alone != (outbox.Position{}) && x.tracker.InFlight() == 1
		return &source.PublishError{Last: x.last, Row: x.lastRow, Alone: alone, Err: *f}
	}
	if f := x.sqlFailure.Load(); f != nil {
		return errors.Join(*f, x.sendStatus(false))
	}
	return nil
}

// lease ends the session of a process that was stopped for longer than its own time-out, before it
// hands over another row: the server has given the slot to somebody else, and what lies in the buffer
// of the dead connection may be on Kafka already (H15).
func (x *session) lease() error {
	now := time.Now()
	if postgres.Absence(x.active, now) > x.past.senderTimeout {
		return errLease
	}
	x.active = now
	return nil
}

// hasRoom says whether another row may be read. While there is none nothing is read, so that the
// server holds the rest.
func (x *session) hasRoom() bool {
	rows, bytes := x.tracker.Room()
	if x.past.alone != (outbox.Position{}) {
		return rows > 0 && x.tracker.InFlight() == 0
	}
	return rows > 0 && bytes < windowBytes
}

// waitFor waits until what may be so, an event comes on also, the goroutine is wanted elsewhere, or
// the status is due, which it sends. The caller looks again.
func (x *session) waitFor(what func() bool, also <-chan struct{}) error {
	x.hurry()
	x.room.Arm()
	if what() || x.wake.Load() {
		return nil
	}
	timer := time.NewTimer(time.Until(x.told.Add(x.cfg.StatusInterval)))
	defer timer.Stop()
	select {
	case <-x.room.C:
	case <-x.woken:
	case <-also:
	case <-timer.C:
		return x.tick()
	}
	return nil
}

// drain waits until everything that was handed over is acknowledged and settled, confirms it, and
// ends the stream in order. limit bounds it; 0 leaves that to the connection, which the hard context
// closes. What goes wrong on the way ends the wait, not the goodbye.
func (x *session) drain(limit time.Duration) error {
	var deadline time.Time
	if limit > 0 {
		deadline = time.Now().Add(limit)
	}
	var err error
	for err == nil && !x.drained() {
		x.wake.Store(false)
		if err = x.fault(); err != nil {
			break
		}
		if !deadline.IsZero() && time.Now().After(deadline) {
			err = fmt.Errorf("%d events were not acknowledged and %d rows not settled within %v", x.tracker.InFlight()-x.unsent, x.tracker.Unsettled(), limit)
			break
		}
		if err := x.waitFor(x.drained, nil); err != nil {
			return err
		}
	}
	return errors.Join(err, x.goodbye())
}

// hurry sends what was handed over on its way before the goroutine waits. Events of a backlog are not
// hurried: they are late already, and Kafka takes a few large batches more easily than many small ones.
func (x *session) hurry() {
	if x.handed && (!x.wire.behind || x.past.alone != (outbox.Position{})) {
		x.handed = false
		x.pub.Hurry()
	}
}

func (x *session) drained() bool {
	return x.tracker.InFlight() <= x.unsent && x.tracker.Unsettled() == 0
}

// goodbye tells the last position and waits until the server has read it.
func (x *session) goodbye() error {
	if err := x.sendStatus(false); err != nil {
		return fmt.Errorf("send the last status: %w", err)
	}
	if err := x.wire.sendCopyDone(); err != nil {
		return fmt.Errorf("end the stream: %w", err)
	}
	if err := x.conn.SetReadDeadline(time.Now().Add(2 * time.Second)); err != nil {
		return err
	}
	for {
		typ, _, large, err := x.wire.next()
		if large > 0 {
			_, err = io.CopyN(io.Discard, body{x.wire, func() error { return errTick }}, int64(large))
		}
		if err != nil || typ == 'c' || typ == 'C' || typ == 'E' {
			return nil // it is confirmed, or it will be sent again: neither is worth a message
		}
	}
}

// tick writes the status and sets the deadline of the next one.
func (x *session) tick() error {
	if err := x.lease(); err != nil { // a message that is long in coming is no reason to give up the lease
		return err
	}
	now := time.Now()
	if x.wire.fills != x.fills {
		x.fills, x.heard = x.wire.fills, now
	}
	if x.trusted.Load() {
		x.tracker.Idle(x.idle)
	}
	if !x.flood.until.IsZero() && now.After(x.flood.until) {
		return errors.Join(errStopping, x.sendStatus(false))
	}
	full := !x.hasRoom() // then an answer would lie unread
	if err := x.sendStatus(now.Sub(x.heard) > silence && !full); err != nil {
		return fmt.Errorf("send status: %w", err)
	}
	x.update(func(st *State) { st.Told, st.Heard, st.Full = now, x.heard, full })
	return x.setDeadline()
}

// setDeadline lets reads end in time for the next status.
func (x *session) setDeadline() error {
	wait := x.cfg.StatusInterval
	if x.owes {
		wait = min(wait, replyPace)
	}
	if err := x.conn.SetReadDeadline(x.told.Add(wait)); err != nil {
		return err
	}
	if x.wake.Load() {
		return x.conn.SetReadDeadline(time.Unix(1, 0))
	}
	return nil
}

func (x *session) sendStatus(reply bool) error {
	now := time.Now()
	x.told, x.owes = now, false
	flush := x.tracker.Confirmable()
	x.metrics.confirmed.Store(uint64(flush))
	return x.wire.sendStatus(x.received, flush, now, reply)
}

// handle takes one message of the server.
func (x *session) handle(typ byte, msg []byte) error {
	switch typ {
	case 'd':
		if len(msg) == 0 {
			return errors.New("empty CopyData: the stream is broken")
		}
		switch msg[0] {
		case 'w':
			if len(msg) < xlogHeaderLen {
				return fmt.Errorf("XLogData of %d bytes: the stream is broken", len(msg))
			}
			x.wire.sent(msg)
			kind, err := x.decoder.Decode(msg[xlogHeaderLen:])
			return x.decoded(kind, err)
		case 'k':
			x.heard = time.Now()
			return x.keepalive(msg)
		}
		return fmt.Errorf("CopyData of unknown type %q: the stream is broken", msg[0])
	case 'E':
		return fmt.Errorf("stream: %w", serverError(msg))
	case 'N':
		if n, err := serverNotice(msg); err == nil {
			x.notice(n)
		}
		return nil
	case 'S':
		return nil
	case 'c', 'C':
		return errors.New("the server has ended the stream")
	}
	return fmt.Errorf("unexpected message %q: the stream is broken", typ)
}

// readLarge takes a message that is too long to be held: it is decoded while it is read, and what is
// not an id is thrown away (H17).
func (x *session) readLarge(typ byte, n int) error {
	r := body{x.wire, x.attend}
	var header [xlogHeaderLen]byte
	if typ != 'd' || n < len(header) {
		return fmt.Errorf("message %q of %d bytes: the stream is broken", typ, n)
	}
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return fmt.Errorf("read the stream: %w", err)
	}
	if header[0] != 'w' {
		return fmt.Errorf("CopyData of type %q and %d bytes: the stream is broken", header[0], n)
	}
	kind, err := x.decoder.DecodeLarge(r, n-len(header))
	return x.decoded(kind, err)
}

// attend is what is due when a read deadline passes inside a message. An interrupt leaves the deadline
// in the past until it is looked at, so that without a look every read would end at once, for ever.
func (x *session) attend() error {
	if x.wake.Load() {
		return x.lookUp()
	}
	return x.tick()
}

// decoded takes what a message meant.
func (x *session) decoded(kind decoder.Kind, err error) error {
	var row *decoder.RowError
	if err != nil && !errors.As(err, &row) {
		return fmt.Errorf("stream: %w", err)
	}
	switch kind {
	case decoder.KindBegin:
		x.begin = x.decoder.Begin()
		x.wire.committed(x.begin.CommitTime)
		x.position.LSN, x.position.Ordinal = x.begin.FinalLSN, 0
		if err := x.resume.begin(x.begin.XID, x.begin.FinalLSN); err != nil {
			return err
		}
		return x.tracker.Open(x.begin.XID, x.begin.FinalLSN)
	case decoder.KindInsert:
		return x.insert(x.decoder.Event(), row)
	case decoder.KindCommit:
		return x.commit(x.decoder.Commit().EndLSN)
	case decoder.KindTruncate:
		if x.decoder.Truncated() {
			x.log.Warn("the outbox table was truncated: rows already in the stream are still published", "table", x.Table.String())
		}
	}
	return nil
}

func (x *session) commit(end pglogrepl.LSN) error {
	found, err := x.resume.commit(x.begin.XID, end)
	if err != nil {
		return err
	}
	if found {
		x.tracker.ReleaseHeld()
		x.log.Info("found the position that was published last", "lsn", end.String())
	}
	x.received = max(x.received, end)
	return x.tracker.Close(end)
}

// insert takes one wire insert. ev is nil when it is of another table.
func (x *session) insert(ev *outbox.Event, fault *decoder.RowError) error {
	if !x.tracker.InTransaction() {
		return errors.New("insert outside a transaction: the stream is broken")
	}
	at := x.position
	x.position.Ordinal++
	fate := x.resume.row()
	if fault == nil && (ev == nil || ev.Published) {
		x.tracker.Skip(1)
		return nil
	}
	row := identify(ev, fault)
	switch {
	case fate == skip:
		x.tracker.Skip(1)
		return nil
	case x.past.givenUp[row.EventID] && x.After == checkpoint.Delete:
		// The row stays in the table, marked: a later process that reads the event again, because the
		// server was not told in time or has forgotten, knows by it that the event was given up.
		x.tracker.Skip(1)
		return nil
	case fate == settle, x.past.givenUp[row.EventID]:
		x.tracker.AddResolved(row)
		return nil
	case fate == hold:
		x.tracker.AddHeld(row)
		return nil
	case fault != nil:
		return &source.PoisonError{RowID: row.RowID, EventID: row.EventID, Position: at, Err: fault}
	case ev.Size > x.rowLimit:
		return &source.PoisonError{RowID: row.RowID, EventID: row.EventID, Position: at,
			Err: fmt.Errorf("the row has %d bytes, more than the limit of %d (four times KAFKA_MAX_MESSAGE_BYTES)", ev.Size, x.rowLimit)}
	}
	ev.Position = at
	token := x.tracker.Add(row, ev.Size)
	if x.fresh.Load() == 0 && x.begin.FinalLSN >= x.began {
		x.fresh.Store(token)
	}
	x.metrics.Received.Inc()
	if x.probe.Load() == 0 {
		x.probeFrom.Store(x.begin.CommitTime.UnixNano())
		x.probe.Store(token)
	}
	return x.publish(ev, token, at)
}

func identify(ev *outbox.Event, fault *decoder.RowError) checkpoint.Row {
	if fault != nil {
		return checkpoint.Row{RowID: fault.RowID, EventID: fault.EventID}
	}
	return checkpoint.Row{RowID: ev.RowID, EventID: ev.ID}
}

// publish hands the event over, and again as long as it cannot be taken. Until then the row stays
// unresolved, so that nothing behind it is ever confirmed by this session.
func (x *session) publish(ev *outbox.Event, token uint64, at outbox.Position) error {
	if alone := x.past.alone; alone != (outbox.Position{}) && alone.Before(at) {
		x.past.alone = outbox.Position{} // past the range that had a rejected event in it
		x.log.Info("every event of the rejected batch is published")
	}
	for {
		err := x.pub.Publish(ev, token, x)
		if err == nil {
			x.handed = true
			x.last, x.lastRow = at, checkpoint.Row{RowID: ev.RowID, EventID: ev.ID}
			return nil
		}
		x.unsent = 1
		if !errors.Is(err, source.ErrPending) {
			return &source.PoisonError{RowID: ev.RowID, EventID: ev.ID, Position: at, Err: err}
		}
		if err := x.waitFor(func() bool { return false }, x.pub.Wake()); err != nil {
			return err
		}
		if x.wake.Load() {
			if err := x.lookUp(); err != nil {
				return err
			}
		}
		if !x.leaving.IsZero() {
			return x.leave() // without the event: its topic may never come
		}
		x.unsent = 0
	}
}
