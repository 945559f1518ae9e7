package pgfake

import (
	"context"
	"fmt"
	"maps"
	"time"
)

// Stop is a fast shutdown: SQL connections end with 57P01, new ones get 57P03, and walsenders stay
// until their clients have confirmed everything or leave (H24). It returns once the server is down.
// When ctx ends first the server crashes, as an operator's kill -9 would make it.
func (s *Server) Stop(ctx context.Context) error {
	s.mu.Lock()
	s.phase = stopping
	s.mu.Unlock()
	s.endConns(errTerminated(), func(c *Conn) bool { return c.stream == nil })

	s.mu.Lock()
	s.wal.append(entryOther, shutdownSize)
	s.wal.flushTo(s.wal.insert)
	s.wakeStreamsLocked()
	err := s.awaitLocked(ctx, func() bool { return len(s.conns) == 0 })
	if err == nil && s.cfg.Major >= 17 {
		for _, sl := range s.slots { // the shutdown checkpoint saves them (FACTS E3 b)
			sl.save()
		}
	}
	s.mu.Unlock()
	s.Crash()
	if err != nil {
		return fmt.Errorf("stop: a walsender did not end: %w", err)
	}
	return nil
}

// Crash ends every connection without a word and leaves the server down. Commits that are not on disk
// are lost, and slots go back to what was saved of them (FACTS A1, E3 b).
func (s *Server) Crash() {
	s.mu.Lock()
	s.phase = down
	s.refuseLocked()
	s.mu.Unlock()
	s.drop()

	s.mu.Lock()
	defer s.mu.Unlock()
	s.wal.crash()
	for _, tx := range s.running {
		if tx.done { // its commit record is on disk: recovery shows it
			tx.showLocked()
		}
	}
	s.boots++
	clear(s.running)
	s.lastXID = s.nextXID - 1
	clear(s.locks)
	for _, sl := range s.slots {
		sl.forget()
	}
	s.resequenceLocked()
	s.table.locked = false
	for _, r := range s.table.rows {
		r.lockedBy = nil
	}
}

// drop ends all connections and waits until they are forgotten.
func (s *Server) drop() {
	s.endConns(nil, func(*Conn) bool { return true })
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.conns) > 0 {
		s.cond.Wait()
	}
}

// resequenceLocked takes the sequence back to what the table holds: an id that a crash has lost comes
// again (H11).
func (s *Server) resequenceLocked() {
	s.table.nextID = 1
	for id := range s.table.rows {
		s.table.nextID = max(s.table.nextID, id+1)
	}
}

// Recover makes new connections get 57P03 "starting up", as after a crash.
func (s *Server) Recover() { s.setPhase(starting) }

// Start makes the server accept connections again.
func (s *Server) Start() { s.setPhase(up) }

func (s *Server) setPhase(p phase) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.phase = p
	s.refuseLocked()
}

// Terminate is pg_terminate_backend for the connections that match: FATAL 57P01.
func (s *Server) Terminate(match func(*Conn) bool) { s.endConns(errTerminated(), match) }

// Checkpoint saves every slot.
func (s *Server) Checkpoint() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sl := range s.slots {
		sl.save()
	}
}

// FailStream makes every stream end with that error at the next transaction that it would send, until
// it is called with nil: a publication that is missing, a row that cannot be decoded (H18).
func (s *Server) FailStream(err *Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.streamError = err
}

// AdvanceSlot moves a slot that nobody uses, as pg_replication_slot_advance does (H21).
func (s *Server) AdvanceSlot(name string, to lsn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	sl, ok := s.slots[name]
	if !ok || sl.pid() != 0 || to <= sl.confirmed {
		return false
	}
	sl.confirmed, sl.origin = to, max(sl.origin, to) // what it passed over is the operator's to answer for
	sl.save()
	return true
}

// HoldSlot makes a slot look active, as of a client that is not here, until the time is over.
func (s *Server) HoldSlot(name string, d time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	sl, ok := s.slots[name]
	if !ok || sl.active != nil {
		return false
	}
	sl.busyUntil, sl.busyPID = time.Now().Add(d), 3999
	return true
}

// Image is a copy of the data directory.
type Image struct {
	wal      wal
	table    table
	rows     []rowImage
	slots    map[string]slot
	switches []timelineSwitch
	timeline int32
	nextXID  uint64
	lastXID  uint64
}

type rowImage struct {
	r *row
	s row
}

// Image copies what is on disk now. Transactions that run are not in it.
func (s *Server) Image() *Image {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wal.flushTo(s.wal.insert)
	img := &Image{
		wal:   wal{insert: s.wal.insert, flush: s.wal.flush, entries: append([]entry(nil), s.wal.entries...)},
		table: s.table, slots: make(map[string]slot),
		switches: s.switches, timeline: s.timeline, nextXID: s.nextXID, lastXID: s.nextXID - 1,
	}
	img.table.rows = maps.Clone(s.table.rows)
	for _, r := range s.table.rows {
		img.rows = append(img.rows, rowImage{r, *r})
	}
	for name, sl := range s.slots {
		img.slots[name] = *sl
	}
	return img
}

// Restore puts an image in place of the data directory: same system id, same timeline, another
// history from there on (H4). The server is down afterwards, with its slots as saved in the image.
func (s *Server) Restore(img *Image) {
	s.Crash()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wal = wal{insert: img.wal.insert, flush: img.wal.flush, entries: append([]entry(nil), img.wal.entries...)}
	s.table = img.table
	s.table.rows, s.table.locked = maps.Clone(img.table.rows), false
	for _, im := range img.rows {
		txn := im.r.txn
		*im.r = im.s
		im.r.lockedBy, txn.shown = nil, true
	}
	s.slots = make(map[string]*slot, len(img.slots))
	for name, sl := range img.slots {
		sl.forget()
		s.slots[name] = &sl
	}
	s.switches, s.timeline = img.switches, img.timeline
	s.nextXID, s.lastXID = img.nextXID, img.lastXID
	s.history++
}

// Promote makes a standby, which had replayed up to the given position, the server: the WAL beyond it
// is lost, a new timeline begins there, and slots are what was saved of them. The server is down
// afterwards; a position at or above the WAL's end loses nothing.
func (s *Server) Promote(at lsn) {
	s.Crash()
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.wal.at(at)
	if n == len(s.wal.entries) {
		at = s.wal.flush
	} else {
		at = s.wal.entries[n].start
	}
	for i := len(s.wal.entries) - 1; i >= n; i-- {
		if e := s.wal.entries[i]; e.kind == entryCommit {
			s.loseLocked(e.txn)
			s.unsettleLocked(e.end)
		}
	}
	s.wal.entries = s.wal.entries[:n:n]
	s.wal.insert, s.wal.flush = at, at
	for _, sl := range s.slots {
		sl.confirmed, sl.restart = min(sl.confirmed, at), min(sl.restart, at)
		sl.save()
	}
	s.timeline++
	s.switches = append(s.switches, timelineSwitch{s.timeline, at})
	s.resequenceLocked()
	s.history++
}

// unsettleLocked takes back a settle that a failover has lost.
func (s *Server) unsettleLocked(end lsn) {
	for _, e := range s.wal.entries {
		if e.kind != entryCommit {
			continue
		}
		for _, r := range e.txn.rows {
			if r.settled != end {
				continue
			}
			r.settled, r.marked = 0, r.PublishedAt
			if r.gone == deletedByRelay {
				r.gone = present
				s.table.rows[r.ID] = r
			}
		}
	}
}
