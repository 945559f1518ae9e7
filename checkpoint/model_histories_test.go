package checkpoint

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/jackc/pglogrepl"
	"pgregory.net/rapid"
)

// TestTrackerAgreesWithModel runs random histories: nothing may be confirmed early, carried wrongly, lost from or
// repeated in what is to be settled.
func TestTrackerAgreesWithModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := newHistory(t)
		t.Repeat(map[string]func(*rapid.T){
			"open": h.open, "add": h.add, "add more": h.add, "skip": h.skip, "close": h.close, "idle": h.idle,
			"hold": h.hold, "release": h.release, "done": h.done, "done more": h.done, "done twice": h.doneTwice,
			"settle": h.settle, "settle more": h.settle, "settle wrongly": h.settleWrongly, "": h.check,
		})
	})
}

type history struct {
	m         *model
	tracker   *Tracker
	confirmed pglogrepl.LSN
	lsn       pglogrepl.LSN // where the server's WAL is
	xid       uint32
}

func newHistory(t *rapid.T) *history {
	m := &model{settles: rapid.Bool().Draw(t, "settles"), start: 1000}
	if rapid.Bool().Draw(t, "carried") {
		m.base.End = pglogrepl.LSN(rapid.IntRange(900, 1200).Draw(t, "carried end"))
		m.base.XID = 7
		m.base.Settled = pglogrepl.LSN(rapid.IntRange(900, int(m.base.End)).Draw(t, "carried settled"))
		if rapid.Bool().Draw(t, "carried part") {
			rows := rapid.Uint32Range(1, 6).Draw(t, "part rows")
			m.base.Part = Part{XID: 8, Final: m.base.End + pglogrepl.LSN(rapid.IntRange(0, 100).Draw(t, "part final")),
				Rows: rows, Settled: rapid.Uint32Range(0, rows).Draw(t, "part settled")}
		}
	}
	capacity := rapid.SampledFrom([]int{1, 2, 4, 8, 16}).Draw(t, "capacity")
	tracker := NewTracker(Options{Rows: capacity, Start: m.start, Settles: m.settles, Carried: m.base})
	return &history{m: m, tracker: tracker, confirmed: m.start, lsn: m.start, xid: 100}
}

func (h *history) advance(t *rapid.T) pglogrepl.LSN {
	h.lsn += pglogrepl.LSN(rapid.IntRange(1, 40).Draw(t, "wal"))
	return h.lsn
}

func (h *history) open(t *rapid.T) {
	h.xid++
	final := h.advance(t)
	err := h.tracker.Open(h.xid, final)
	if h.m.open() != nil {
		if err == nil {
			t.Fatal("begin inside a transaction was taken")
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	h.m.events = append(h.m.events, modelEvent{xid: h.xid, final: final})
}

func (h *history) add(t *rapid.T) {
	e := h.m.open()
	free, _ := h.tracker.Room()
	if want := h.m.free(h.tracker.Capacity()); free > want || (free == 0) != (want == 0) {
		t.Fatalf("room for %d rows, the model says %d", free, want)
	}
	if e == nil || free == 0 {
		t.Skip("nothing open or no room")
	}
	r := &modelRow{token: uint64(len(h.m.rows) + 1), row: Row{RowID: int64(len(h.m.rows))}}
	r.row.EventID[0] = byte(r.token)
	var token uint64
	kind := rapid.SampledFrom([]string{"new", "new", "resolved", "held"}).Draw(t, "kind")
	switch {
	case kind == "held" && h.m.holding:
		r.held, r.resolved = true, true
		token = h.tracker.AddHeld(r.row)
	case kind == "resolved":
		r.resolved = true
		token = h.tracker.AddResolved(r.row)
	default:
		r.size = rapid.IntRange(0, 1000).Draw(t, "size")
		token = h.tracker.Add(r.row, r.size)
	}
	if token != r.token {
		t.Fatalf("token %d, want %d", token, r.token)
	}
	h.m.rows = append(h.m.rows, r)
	e.insert = append(e.insert, r)
}

func (h *history) skip(t *rapid.T) {
	e := h.m.open()
	if e == nil {
		t.Skip("nothing open")
	}
	n := rapid.IntRange(1, 3).Draw(t, "skipped")
	e.insert = append(e.insert, make([]*modelRow, n)...)
	h.tracker.Skip(n)
}

func (h *history) close(t *rapid.T) {
	e := h.m.open()
	if last := h.m.lastEnd(); e != nil && last > 0 && rapid.IntRange(0, 9).Draw(t, "wrong end") == 0 {
		if h.tracker.Close(last-1) == nil {
			t.Fatalf("commit at %s after %s was taken", last-1, last)
		}
		return
	}
	end := h.advance(t)
	err := h.tracker.Close(end)
	if e == nil {
		if err == nil {
			t.Fatal("commit outside a transaction was taken")
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	e.end = end
}

func (h *history) idle(t *rapid.T) {
	end := h.lsn + pglogrepl.LSN(rapid.IntRange(-30, 30).Draw(t, "keepalive"))
	h.tracker.Idle(end)
	for i := range h.m.events {
		if !h.m.whole(&h.m.events[i], true) {
			return
		}
	}
	if !h.m.holding && end > h.m.watermark(true) {
		h.m.events = append(h.m.events, modelEvent{end: end, idle: true})
		h.lsn = max(h.lsn, end)
	}
}

// hold comes before anything else, as a session does it.
func (h *history) hold(t *rapid.T) {
	if len(h.m.events) > 0 || h.m.holding {
		t.Skip("too late to hold")
	}
	h.m.holding = true
	h.tracker.Hold()
}

func (h *history) release(*rapid.T) {
	h.m.holding = false
	for _, r := range h.m.rows {
		r.held = false
	}
	h.tracker.ReleaseHeld()
}

// pick draws a row for which f holds.
func (h *history) pick(t *rapid.T, f func(*modelRow) bool) *modelRow {
	rows := slices.DeleteFunc(slices.Clone(h.m.rows), func(r *modelRow) bool { return !f(r) })
	if len(rows) == 0 {
		t.Skip("no such row")
	}
	return rows[rapid.IntRange(0, len(rows)-1).Draw(t, "row")]
}

func (h *history) done(t *rapid.T) {
	r := h.pick(t, func(r *modelRow) bool { return !r.resolved })
	if err := h.tracker.Done(r.token); err != nil {
		t.Fatal(err)
	}
	r.resolved = true
}

func (h *history) doneTwice(t *rapid.T) {
	token := uint64(len(h.m.rows)) + rapid.Uint64Range(1, 20).Draw(t, "unknown")
	if rapid.Bool().Draw(t, "known") {
		token = h.pick(t, func(r *modelRow) bool { return r.resolved }).token
	}
	if err := h.tracker.Done(token); !errors.Is(err, ErrToken) {
		t.Fatalf("second or unknown ack of %d: %v", token, err)
	}
}

func (h *history) settle(t *rapid.T) {
	if !h.m.settles {
		t.Skip("keep")
	}
	pending := h.m.pending()
	if len(pending) == 0 {
		t.Skip("nothing to settle")
	}
	p := pending[rapid.IntRange(0, len(pending)-1).Draw(t, "pending")]
	if err := h.tracker.Settled(p.Token); err != nil {
		t.Fatal(err)
	}
	h.m.rows[p.Token-1].settled = true
}

func (h *history) settleWrongly(t *rapid.T) {
	r := h.pick(t, func(r *modelRow) bool { return !h.m.settles || r.settled || r.held || !r.resolved })
	if err := h.tracker.Settled(r.token); !errors.Is(err, ErrToken) {
		t.Fatalf("row %d was settled: %v", r.token, err)
	}
}

func (h *history) check(t *rapid.T) {
	lsn := h.tracker.Confirmable()
	if want := h.m.watermark(true); lsn != want {
		t.Fatalf("no early ack: confirmable %s, the model says %s", lsn, want)
	}
	if lsn < h.confirmed {
		t.Fatalf("confirmable went back from %s to %s", h.confirmed, lsn)
	}
	h.confirmed = lsn
	carried, want := h.tracker.Carried(), h.m.carried()
	if carried != want {
		t.Fatalf("carried %+v, the model says %+v", carried, want)
	}
	if n := h.m.held(carried); n > h.tracker.Capacity() && h.m.base == (Carried{}) {
		t.Fatalf("progress: the next session must hold %d rows and has room for %d", n, h.tracker.Capacity())
	}
	after := rapid.Uint64Range(0, uint64(len(h.m.rows))).Draw(t, "after")
	limit := rapid.IntRange(0, 20).Draw(t, "limit")
	pending := slices.DeleteFunc(h.m.pending(), func(p Pending) bool { return p.Token <= after })
	pending = pending[:min(limit, len(pending))]
	if got := h.tracker.PendingAfter(nil, after, limit); !slices.Equal(got, pending) {
		t.Fatalf("pending after %d: %v, the model says %v", after, got, pending)
	}
	h.checkCounts(t)
}

func (h *history) checkCounts(t *rapid.T) {
	m := h.m
	want := Stats{
		ResolvedLSN:  m.watermark(false),
		SettledLSN:   m.watermark(true),
		InFlightRows: m.count(func(r *modelRow) bool { return !r.resolved }),
		HeldRows:     m.count(func(r *modelRow) bool { return r.held }),
	}
	for _, r := range m.rows {
		if !r.resolved {
			want.InFlightBytes += int64(r.size)
		}
	}
	if m.settles {
		want.Unsettled = m.count(func(r *modelRow) bool { return r.resolved && !r.held && !r.settled })
	}
	got := h.tracker.Stats()
	openTransactions := got.OpenTransactions
	got.OpenTransactions = 0
	if got != want {
		t.Fatalf("stats %+v, the model says %+v", got, want)
	}
	if err := h.checkTransactions(openTransactions); err != nil {
		t.Fatal(err)
	}
}

// checkTransactions: those with rows that are not settled are counted, and empty ones take no place.
func (h *history) checkTransactions(got int) error {
	want, empties := 0, 0
	for i := range h.m.events {
		e := &h.m.events[i]
		switch {
		case e.idle:
		case e.end == 0:
			want++
		case len(e.rows()) == 0:
			empties = 1
		case !h.m.whole(e, true) || want > 0:
			want++
		}
	}
	if got < want || got > want+empties {
		return fmt.Errorf("bounded memory: %d transactions are kept, the model says %d", got, want)
	}
	return nil
}
