package pgfake

import (
	"io"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"
)

// step does one thing: some rows, a record, a keepalive; or says how long to wait for a nudge.
// io.EOF is the answer to CopyDone.
func (w *walsender) step() (wait time.Duration, err error) {
	s := w.s
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	silent := now.Sub(w.lastReply)
	switch {
	case w.ended:
		return 0, errPeerGone
	case w.copyDone:
		w.c.send(&pgproto3.CopyDone{})
		return 0, io.EOF
	case w.timeout > 0 && silent >= w.timeout:
		return 0, errTimeout
	case w.timeout > 0 && silent >= w.timeout/2 && !w.pinged:
		w.keepaliveLocked(true)
		return 0, nil
	case w.asked:
		w.asked = false
		w.keepaliveLocked(false)
		return 0, nil
	case w.open != nil:
		w.rowsLocked()
		return 0, nil
	case w.next < len(s.wal.entries) && s.wal.entries[w.next].end <= s.wal.flush:
		return 0, w.decodeLocked(&s.wal.entries[w.next])
	}
	return w.caughtUpLocked(now, silent)
}

// decodeLocked takes the next record.
func (w *walsender) decodeLocked(e *entry) error {
	if e.kind == entryCommit && w.sendsLocked(e.txn) {
		if err := w.s.streamError; err != nil {
			w.failed = true
			w.c.send(err.response())
			return errFailed
		}
		w.open, w.row = e.txn, 0
		w.c.out = e.txn.appendBegin(w.c.out)
		return nil
	}
	if e.kind == entryRunningXacts && w.slot.candidate.valid == 0 && e.end > w.slot.restart {
		w.slot.candidate.valid, w.slot.candidate.restart = e.end, e.oldest
	}
	w.sent = e.end
	w.next++
	return nil
}

// sendsLocked says whether anything of a transaction is sent. It is iff its commit record starts at
// or above the start position; one without changes is sent by PostgreSQL 14 only (FACTS E2).
func (w *walsender) sendsLocked(t *Txn) bool {
	if t.Foreign || t.Final < w.start {
		return false
	}
	if w.s.cfg.Major < 15 || len(t.raw) > 0 {
		return true
	}
	for _, r := range t.rows {
		if r.streamed {
			return true
		}
	}
	return false
}

// rowsLocked sends on in the open transaction, until there is enough to write or it is over.
func (w *walsender) rowsLocked() {
	t := w.open
	for ; w.row < len(t.rows); w.row++ {
		r := t.rows[w.row]
		if !r.streamed {
			continue
		}
		if len(w.c.out) >= flushAt {
			return
		}
		rel := w.s.relationOf(r)
		if w.relations[rel.oid] != rel.shape {
			w.relations[rel.oid] = rel.shape
			w.c.out = rel.append(w.c.out)
		}
		w.c.out = r.append(w.c.out, rel)
	}
	for _, raw := range t.raw {
		w.c.out = message(w.c.out, t.First, func(b []byte) []byte { return append(b, raw...) })
	}
	w.c.out = t.appendCommit(w.c.out)
	w.open = nil
	w.sent = t.End
	w.next++
	w.tellLocked(t.End)
}

// tellLocked notes a position that the client may confirm from now on.
func (w *walsender) tellLocked(at lsn) {
	w.told = max(w.told, at)
	w.s.judge.knowLocked(w, at)
}

func (w *walsender) keepaliveLocked(reply bool) {
	w.c.out = appendKeepalive(w.c.out, w.sent, reply)
	w.tellLocked(w.sent)
	w.lastPing.sent, w.lastPing.at = w.sent, time.Now()
	w.pinged = w.pinged || reply
}

// caughtUpLocked is what a walsender does when it has decoded all that is on disk.
func (w *walsender) caughtUpLocked(now time.Time, silent time.Duration) (time.Duration, error) {
	// Until the next look without a nudge: half of the time-out, then the whole of it.
	wait := time.Hour
	if w.timeout > 0 {
		due := w.timeout / 2
		if w.pinged {
			due = w.timeout
		}
		wait = max(due-silent, 1)
	}
	if w.s.phase == stopping {
		return w.drainLocked(now, wait)
	}
	if w.flush < w.sent && w.write < w.sent &&
		(w.lastPing.sent != w.sent || now.Sub(w.lastPing.at) >= quiet) {
		w.keepaliveLocked(false)
		return 0, nil
	}
	return wait, nil
}

// drainLocked is the end of a fast shutdown (WalSndDone): the server leaves once the client has
// confirmed everything, and until then asks for a reply again and again, as fast as replies come
// (H24, FACTS A2).
func (w *walsender) drainLocked(now time.Time, wait time.Duration) (time.Duration, error) {
	confirmed := w.flush
	if confirmed == 0 {
		confirmed = w.write
	}
	if confirmed == w.sent {
		return 0, errShutdown
	}
	if w.pinged {
		return wait, nil
	}
	if pause := w.lastPing.at.Add(w.s.cfg.FloodPause).Sub(now); pause > 0 {
		return min(pause, wait), nil
	}
	w.keepaliveLocked(true)
	return 0, nil
}
