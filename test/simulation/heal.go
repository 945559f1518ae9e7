package simulation

import (
	"fmt"
	"time"

	"walrelay/checkpoint"
)

// heal waits until nothing is left to do.
func (w *world) heal() {
	deadline := time.Now().Add(healing)
	for {
		undone := w.undone()
		if undone == "" {
			return
		}
		if time.Now().After(deadline) {
			w.say(Progress, "%v after the last fault %s", healing, undone)
			return
		}
		w.watchUntil(time.Now().Add(looking))
	}
}

// undone says what is not done yet.
func (w *world) undone() string {
	slot, ok := w.pg.Slot(slotName)
	if !ok {
		return "there is no slot"
	}
	if n := w.pg.Unmarked() - w.lostSettles(); n > 0 && w.plan.Setup.After != checkpoint.Keep {
		return fmt.Sprintf("%d rows are not settled", n)
	}
	if _, flush := w.pg.LSN(); slot.ConfirmedFlushLSN < flush {
		return fmt.Sprintf("the slot has confirmed %s and the WAL ends at %s", slot.ConfirmedFlushLSN, flush)
	}
	return ""
}

// lostSettles counts the rows that are unmarked because their settle was lost.
func (w *world) lostSettles() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for id := range w.lost {
		if st, ok := w.pg.Row(id); ok && st.Visible && st.Marked.IsZero() {
			n++
		}
	}
	return n
}

// within runs f and says whether it ended in time; where not, it goes on.
func within(d time.Duration, f func()) bool {
	done := make(chan struct{})
	go func() { f(); close(done) }()
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-done:
		return true
	case <-t.C:
		return false
	}
}
