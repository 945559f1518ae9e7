package pgfake

import (
	"fmt"
	"time"

	"walrelay/outbox"
)

// Promises of DESIGN.md section 1 that a server can see broken; a Violation is named after one.
const (
	Delivered  = "delivered"
	NoEarlyAck = "no early ack"
	Harmless   = "harmless"
)

// JudgeConfig is what the judge is told.
type JudgeConfig struct {
	// Resolved says whether Kafka has acknowledged an event, or it is written to the dead-letter
	// table. It is called with the server locked and must not call the server. nil: every event is.
	Resolved func(outbox.EventID) bool
	// After is what the relay does to a row that is published.
	After After
	// NeedLock demands that a stream begins on a connection that holds an advisory lock.
	NeedLock bool
	// Slack is how much longer than half of wal_sender_timeout a client may be silent.
	Slack time.Duration
}

// Violation is a promise that was seen broken.
type Violation struct {
	Promise string
	Process string // host of the client
	At      time.Time
	Story   string
}

func (v Violation) String() string {
	return fmt.Sprintf("promise %q broken by %s at %s: %s", v.Promise, v.Process, v.At.UTC().Format("15:04:05.000000"), v.Story)
}

// Judge holds every status that the server gets against what is true:
//
//   - flush is below the commit of the first transaction with an event that is not resolved, or not
//     settled in the table on disk;
//   - flush is not above what this stream was sent, and is a position that the server has told: the
//     end of a commit, or of a keepalive;
//   - flush never goes back in a stream, nor below what the same process has confirmed before, as
//     long as the server remembers it; write is not below flush;
//   - no two statuses are more than half of wal_sender_timeout apart;
//   - a row is marked or deleted only when its event is resolved.
type Judge struct {
	s   *Server
	cfg JudgeConfig

	// Guarded by s.mu.
	violations []Violation
	statuses   int
	prefixes   map[prefixKey]*prefix
	confirmed  map[confirmKey]lsn
	known      map[int]map[lsn]struct{} // positions told, by history
	excused    map[string]int
}

type prefixKey struct {
	slot    *slot
	history int
}

type confirmKey struct {
	process, slot string
	history       int
}

// prefix is how far every row is resolved and settled. It only moves forwards.
type prefix struct{ entry, row int }

// verdict is what the judge remembers of one stream.
type verdict struct {
	flush   lsn
	started lsn // confirmed_flush_lsn when the stream began
	last    time.Time
	said    map[string]bool // one story of each kind is enough
}

func newJudge(s *Server, cfg JudgeConfig) *Judge {
	return &Judge{
		s: s, cfg: cfg,
		prefixes:  make(map[prefixKey]*prefix),
		confirmed: make(map[confirmKey]lsn),
		known:     make(map[int]map[lsn]struct{}),
		excused:   make(map[string]int),
	}
}

// Violations are the promises that were seen broken, oldest first.
func (j *Judge) Violations() []Violation {
	j.s.mu.Lock()
	defer j.s.mu.Unlock()
	return append([]Violation(nil), j.violations...)
}

// Statuses is how many statuses were judged.
func (j *Judge) Statuses() int {
	j.s.mu.Lock()
	defer j.s.mu.Unlock()
	return j.statuses
}

// Excuse lets a process be silent from now on: its network is stalled, or it is stopped.
func (j *Judge) Excuse(process string) {
	j.s.mu.Lock()
	defer j.s.mu.Unlock()
	j.excused[process]++
}

// Expect ends one Excuse.
func (j *Judge) Expect(process string) {
	j.s.mu.Lock()
	defer j.s.mu.Unlock()
	j.excused[process]--
	for c := range j.s.conns {
		if c.stream != nil && c.process == process {
			c.stream.verdict.last = time.Now()
		}
	}
}

func (j *Judge) startedLocked(w *walsender) {
	w.verdict = verdict{started: w.slot.confirmed, last: time.Now(), said: make(map[string]bool)}
	j.knowLocked(w, w.slot.confirmed)
	if !j.cfg.NeedLock {
		return
	}
	for _, l := range j.s.locks {
		if l.holder == w.c {
			return
		}
	}
	j.sayLocked(w, Harmless, "lock", "slot %q is streamed on a connection that holds no advisory lock: two leaders are possible (H5)", w.slot.name)
}

func (j *Judge) knowLocked(w *walsender, at lsn) {
	if j.known[w.history] == nil {
		j.known[w.history] = make(map[lsn]struct{})
	}
	j.known[w.history][at] = struct{}{}
}

func (j *Judge) statusLocked(w *walsender, write, flush, apply lsn) {
	j.statuses++
	v := &w.verdict
	j.silenceLocked(w)
	v.last = time.Now()

	if write < flush {
		j.sayLocked(w, NoEarlyAck, "write", "status write=%s is below flush=%s", write, flush)
	}
	if apply > max(write, flush) {
		j.sayLocked(w, NoEarlyAck, "apply", "status apply=%s is above write=%s", apply, write)
	}
	if flush < v.flush {
		j.sayLocked(w, NoEarlyAck, "backwards", "status flush=%s goes back: %s was confirmed in this stream", flush, v.flush)
		return
	}
	if flush == 0 {
		return
	}
	if v.flush == 0 {
		before := j.confirmed[w.confirmKey()]
		if floor := min(before, v.started); flush < floor {
			j.sayLocked(w, NoEarlyAck, "carried", "status flush=%s goes back: this process confirmed %s before, and the server remembers %s", flush, before, v.started)
		}
	}
	v.flush = flush
	if flush > w.told {
		j.sayLocked(w, NoEarlyAck, "unsent", "status flush=%s is beyond %s, the last position that this stream was sent", flush, w.told)
	} else if _, ok := j.known[w.history][flush]; !ok {
		j.sayLocked(w, NoEarlyAck, "unknown", "status flush=%s is no position of this server: neither the end of a commit nor of a keepalive", flush)
	}
	j.prefixLocked(w, flush)
	key := w.confirmKey()
	j.confirmed[key] = max(j.confirmed[key], flush)
}

func (w *walsender) confirmKey() confirmKey {
	return confirmKey{w.c.process, w.slot.name, w.history}
}

// prefixLocked finds the first event that is not resolved and settled, and holds flush against its
// transaction.
func (j *Judge) prefixLocked(w *walsender, flush lsn) {
	key := prefixKey{w.slot, w.history}
	p := j.prefixes[key]
	if p == nil {
		// What was confirmed before a history began is not this client's to answer for: the settle of a row
		// that the slot has passed may be lost by a failover.
		p = &prefix{entry: j.s.wal.at(max(w.slot.origin, w.verdict.started))}
		j.prefixes[key] = p
	}
	r, missing := j.advanceLocked(p, w.slot.origin)
	if r == nil || flush <= r.txn.Final {
		return
	}
	j.sayLocked(w, NoEarlyAck, "early", "status flush=%s covers transaction %d (commit %s, end %s), but event %s (row %d) of it is %s",
		flush, r.txn.XID, r.txn.Final, r.txn.End, r.EventID, r.ID, missing)
}

func (j *Judge) advanceLocked(p *prefix, origin lsn) (blocked *row, missing string) {
	w := &j.s.wal
	for ; p.entry < len(w.entries) && w.entries[p.entry].end <= w.flush; p.entry, p.row = p.entry+1, 0 {
		e := &w.entries[p.entry]
		if e.kind != entryCommit || e.txn.Final < origin {
			continue
		}
		for ; p.row < len(e.txn.rows); p.row++ {
			if missing := j.missingLocked(e.txn.rows[p.row]); missing != "" {
				return e.txn.rows[p.row], missing
			}
		}
	}
	return nil, ""
}

// missingLocked says what a row lacks before its position may be confirmed; nothing is the empty string.
func (j *Judge) missingLocked(r *row) string {
	switch {
	case r.Relation != "", !r.streamed, !r.PublishedAt.IsZero(), r.gone == removedByApp:
		return ""
	case j.cfg.Resolved != nil && !j.cfg.Resolved(r.EventID):
		return "not resolved"
	case j.cfg.After == Keep:
		return ""
	case r.settled == 0 && r.marked.IsZero() && r.gone == present:
		if !r.txn.shown {
			return "resolved but not settled: its transaction is not visible yet (H1)"
		}
		return "resolved but not settled"
	case r.settled > j.s.wal.flush:
		return "settled by a commit that is not on disk (H14)"
	}
	return ""
}

// settlingLocked sees a row being marked or deleted.
func (j *Judge) settlingLocked(c *Conn, r *row) {
	if j.cfg.Resolved == nil || j.cfg.Resolved(r.EventID) {
		return
	}
	j.addLocked(Delivered, c.process, "row %d is settled, but Kafka has not acknowledged its event %s: a crash now would lose it", r.ID, r.EventID)
}

func (j *Judge) endedLocked(w *walsender) { j.silenceLocked(w) }

func (j *Judge) silenceLocked(w *walsender) {
	if w.timeout == 0 || j.excused[w.c.process] > 0 {
		return
	}
	if silent := time.Since(w.verdict.last); silent > w.timeout/2+j.cfg.Slack {
		j.sayLocked(w, Harmless, "silence", "no status for %s; wal_sender_timeout is %s and half of it is the limit", silent, w.timeout)
	}
}

func (j *Judge) sayLocked(w *walsender, promise, kind, format string, args ...any) {
	if w.verdict.said[kind] {
		return
	}
	w.verdict.said[kind] = true
	j.addLocked(promise, w.c.process, format, args...)
}

func (j *Judge) addLocked(promise, process, format string, args ...any) {
	j.violations = append(j.violations, Violation{promise, process, time.Now(), fmt.Sprintf(format, args...)})
}
