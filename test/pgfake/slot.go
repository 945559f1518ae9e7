package pgfake

import (
	"fmt"
	"time"
)

// slot is a logical replication slot.
type slot struct {
	name      string
	plugin    string
	database  string
	failover  bool
	origin    lsn // its consistent point: nothing that committed below it is ever sent
	restart   lsn
	confirmed lsn // confirmed_flush_lsn
	saved     struct{ restart, confirmed lsn }
	candidate struct{ valid, restart lsn } // restart_lsn moves to restart once a confirm reaches valid
	lost      string                       // why it is invalid: wal_removed, idle_timeout …; empty: it is not

	active    *Conn
	busyUntil time.Time // the connection has ended, the slot still looks active
	busyPID   uint32
}

// SlotState is what pg_replication_slots shows of a slot.
type SlotState struct {
	Name, Plugin, Database  string
	Failover                bool
	ActivePID               uint32 // 0: not active
	RestartLSN              lsn    // 0 where it is lost
	ConfirmedFlushLSN       lsn
	WALStatus               string // reserved or lost
	InvalidationReason      string
	SavedConfirmedFlushLSN  lsn // not in the view: what a crash goes back to
	RetainedWAL, UnreadByUs int64
}

// Slot returns the state of a slot.
func (s *Server) Slot(name string) (SlotState, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sl, ok := s.slots[name]
	if !ok {
		return SlotState{}, false
	}
	st := SlotState{
		Name: sl.name, Plugin: sl.plugin, Database: sl.database, Failover: sl.failover,
		ActivePID: sl.pid(), RestartLSN: sl.restart, ConfirmedFlushLSN: sl.confirmed,
		WALStatus: "reserved", InvalidationReason: sl.lost, SavedConfirmedFlushLSN: sl.saved.confirmed,
		RetainedWAL: int64(s.wal.insert - sl.restart), UnreadByUs: int64(s.wal.insert) - int64(sl.confirmed),
	}
	if sl.lost != "" {
		st.WALStatus, st.RestartLSN = "lost", 0
	}
	return st, true
}

func (sl *slot) pid() uint32 {
	switch {
	case sl.active != nil:
		return sl.active.pid
	case time.Now().Before(sl.busyUntil):
		return sl.busyPID
	}
	return 0
}

func (sl *slot) save() { sl.saved.restart, sl.saved.confirmed = sl.restart, sl.confirmed }

// forget is a restart: the slot is what was saved of it.
func (sl *slot) forget() {
	sl.restart, sl.confirmed = sl.saved.restart, sl.saved.confirmed
	sl.candidate.valid, sl.candidate.restart = 0, 0
	sl.active, sl.busyUntil = nil, time.Time{}
}

// confirm is LogicalConfirmReceivedLocation: forwards only, whatever the position is, and saved only
// when restart_lsn moves with it.
func (sl *slot) confirm(flush lsn) {
	if flush > sl.confirmed {
		sl.confirmed = flush
	}
	if c := sl.candidate; c.valid != 0 && flush >= c.valid {
		sl.candidate.valid, sl.candidate.restart = 0, 0
		sl.restart = max(sl.restart, c.restart)
		sl.save()
	}
}

// CreateSlot makes a slot at once, as an operator would have before the test began. It must not exist.
func (s *Server) CreateSlot(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, exists := s.slots[name]; exists {
		panic(fmt.Sprintf("slot %q is made twice", name))
	}
	s.createSlotLocked(name, "pgoutput", false)
}

func (s *Server) createSlotLocked(name, plugin string, failover bool) *slot {
	at := s.runningXactsLocked()
	s.wal.flushTo(s.wal.insert)
	sl := &slot{name: name, plugin: plugin, database: s.cfg.Database, failover: failover, origin: at, restart: at, confirmed: at}
	sl.save()
	s.slots[name] = sl
	s.wakeStreamsLocked()
	return sl
}

// createSlot is CREATE_REPLICATION_SLOT: it waits until every transaction that was writing has ended.
func (c *Conn) createSlot(name, plugin string, failover bool) (*slot, error) {
	s := c.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, exists := s.slots[name]; exists {
		return nil, &Error{Code: "42710", Message: fmt.Sprintf("replication slot %q already exists", name)}
	}
	before := s.nextXID
	err := c.waitLocked(func() bool {
		for xid := range s.running {
			if xid < before {
				return false
			}
		}
		return true
	})
	if err != nil {
		return nil, err
	}
	return s.createSlotLocked(name, plugin, failover), nil
}

// dropSlot is DROP_REPLICATION_SLOT; with wait it waits until nobody uses the slot.
func (c *Conn) dropSlot(name string, wait bool) error {
	s := c.s
	s.mu.Lock()
	defer s.mu.Unlock()
	sl, ok := s.slots[name]
	if !ok {
		return noSlot(name)
	}
	if wait {
		defer time.AfterFunc(time.Until(sl.busyUntil), s.broadcast).Stop()
		if err := c.waitLocked(func() bool { return sl.pid() == 0 }); err != nil {
			return err
		}
	}
	if pid := sl.pid(); pid != 0 {
		return slotActive(name, pid)
	}
	delete(s.slots, name)
	return nil
}

// DropSlot removes a slot that no connection uses, as an operator would.
func (s *Server) DropSlot(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	sl, ok := s.slots[name]
	if !ok || sl.active != nil {
		return false
	}
	delete(s.slots, name)
	return true
}

func noSlot(name string) *Error {
	return &Error{Code: "42704", Message: fmt.Sprintf("replication slot %q does not exist", name)}
}

func slotActive(name string, pid uint32) *Error {
	return &Error{Code: "55006", Message: fmt.Sprintf("replication slot %q is active for PID %d", name, pid)}
}

// lostError is what START_REPLICATION says of an invalid slot; each major has its own words (FACTS E3 e).
func lostError(major int, name, reason string) *Error {
	e := &Error{Code: "55000", Detail: "This slot has been invalidated because it exceeded the maximum reserved size."}
	switch {
	case major >= 18:
		e.Message = fmt.Sprintf("can no longer access replication slot %q", name)
		e.Detail = fmt.Sprintf("This replication slot has been invalidated due to %q.", reason)
	case major >= 16:
		e.Message = fmt.Sprintf("can no longer get changes from replication slot %q", name)
	default:
		e.Message = fmt.Sprintf("cannot read from logical replication slot %q", name)
	}
	return e
}

// InvalidateSlot loses the slot: its client is terminated with 57P01, the next START fails with 55000,
// and the view says "lost" (H25).
func (s *Server) InvalidateSlot(name, reason string) bool {
	s.mu.Lock()
	sl, ok := s.slots[name]
	if !ok {
		s.mu.Unlock()
		return false
	}
	sl.lost = reason
	user := sl.active
	s.mu.Unlock()
	if user != nil {
		s.endConns(errTerminated(), func(c *Conn) bool { return c == user })
	}
	return true
}

func errTerminated() *Error {
	return &Error{Severity: "FATAL", Code: "57P01", Message: "terminating connection due to administrator command"}
}
