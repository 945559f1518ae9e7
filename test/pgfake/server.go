// Package pgfake is a scripted PostgreSQL on the wire: a walsender, the few SQL statements that the
// relay sends, and a small model of the outbox table behind both. Clients talk to it with pgx and
// pgconn as they talk to a real server, over any net.Conn.
//
// It keeps to what shared FACTS A1, A2, A4 and E say of PostgreSQL 14 to 18, so that every fault that
// loses events there loses them here: a restart forgets confirmed positions, a start position above
// the WAL is accepted in silence, a commit is streamed before it is visible. And it judges: every
// status of a client is held against the table and against what Kafka acknowledged (see Judge).
//
// All waiting is on sync.Cond, channels and package time, so that the whole server runs inside a
// testing/synctest bubble over package memnet. Every goroutine ends with Close.
package pgfake

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/jackc/pglogrepl"
	"golang.org/x/sync/errgroup"

	"walrelay/outbox"
)

// Config is what a test decides about the server before it starts. The zero value of a field means
// its default.
type Config struct {
	Major      int           // PostgreSQL major, 14 to 18; default 15
	SystemID   string        // default "7300000000000000001"
	Database   string        // default "app"
	Table      outbox.Table  // default public.outbox
	TableOID   uint32        // default 16384
	FirstXID   uint64        // xid8 of the first transaction; default epoch 1, near the top of 32 bits
	StartLSN   pglogrepl.LSN // default 0/1573000
	SlotLinger time.Duration // how long a slot stays active after its connection ended (FACTS E2)
	FloodPause time.Duration // between two reply requests of a stopping server; default 50 µs (FACTS A2)

	Judge JudgeConfig
}

// Server is one PostgreSQL cluster with one database, one outbox table and any number of slots.
// All of its methods may be called by any goroutine, except from inside a handler's Locked section or
// from JudgeConfig's functions.
type Server struct {
	cfg   Config
	judge *Judge
	group errgroup.Group // one goroutine per connection

	statements struct {
		sync.Mutex
		list      []Statement
		unhandled []string
	}

	mu     sync.Mutex // guards everything below
	cond   sync.Cond  // broadcast on every change that a statement may wait for
	phase  phase
	closed bool
	conns  map[*Conn]struct{}
	ports  []net.Listener

	nextPID  uint32
	timeline int32
	switches []timelineSwitch // how each timeline above 1 began
	boots    int              // counts crashes and restarts
	history  int              // counts the histories of this cluster: grows where LSNs may be used again

	wal     wal
	table   table
	slots   map[string]*slot
	locks   map[int64]*lock
	running map[uint64]*Tx // transactions that other snapshots do not see yet
	nextXID uint64
	lastXID uint64 // highest xid that has ended

	catalog     Catalog
	streamError *Error // ends every stream at its next transaction, until it is taken back
}

// phase is what the postmaster does with a new connection.
type phase uint8

const (
	up       phase = iota
	stopping       // 57P03, walsenders drain
	starting       // 57P03
	down           // connection refused
)

type timelineSwitch struct {
	timeline int32 // that began there
	at       pglogrepl.LSN
}

// New returns a server that is up and listens nowhere.
func New(cfg Config) *Server {
	cfg = cfg.withDefaults()
	s := &Server{
		cfg:      cfg,
		conns:    make(map[*Conn]struct{}),
		nextPID:  4000,
		timeline: 1,
		slots:    make(map[string]*slot),
		locks:    make(map[int64]*lock),
		running:  make(map[uint64]*Tx),
		nextXID:  cfg.FirstXID,
		lastXID:  cfg.FirstXID - 1,
	}
	s.cond.L = &s.mu
	s.wal = wal{insert: cfg.StartLSN, flush: cfg.StartLSN}
	s.table = newTable()
	s.judge = newJudge(s, cfg.Judge)
	s.builtin()
	s.relay()
	return s
}

func (c Config) withDefaults() Config {
	if c.Major == 0 {
		c.Major = 15
	}
	if c.SystemID == "" {
		c.SystemID = "7300000000000000001"
	}
	if c.Database == "" {
		c.Database = "app"
	}
	if c.Table == (outbox.Table{}) {
		c.Table = outbox.Table{Schema: "public", Name: "outbox"}
	}
	if c.TableOID == 0 {
		c.TableOID = 16384
	}
	if c.FirstXID == 0 {
		// The 32 bits of Begin's xid wrap after a few thousand transactions, so that who compares
		// them as plain numbers is found out.
		c.FirstXID = 2<<32 - 2000
	}
	if c.StartLSN == 0 {
		c.StartLSN = 0x1573000
	}
	if c.FloodPause == 0 {
		c.FloodPause = 50 * time.Microsecond
	}
	return c
}

// Judge is the server's judge.
func (s *Server) Judge() *Judge { return s.judge }

// refuser is a listener that can answer as if nobody listened, such as memnet's.
type refuser interface{ Refuse(bool) }

// Serve accepts connections until the listener or the server is closed. While the server is down new
// connections are refused, by the listener where it can and else by an end without a word.
func (s *Server) Serve(l net.Listener) error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return l.Close()
	}
	s.ports = append(s.ports, l)
	s.refuseLocked()
	s.mu.Unlock()
	for {
		nc, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("accept: %w", err)
		}
		s.mu.Lock()
		if s.closed {
			_ = nc.Close()
		} else { // under the lock: Close waits for every connection that was let in
			s.group.Go(func() error {
				s.ServeConn(nc)
				return nil
			})
		}
		s.mu.Unlock()
	}
}

// ServeConn serves one connection and returns when it has ended.
func (s *Server) ServeConn(nc net.Conn) {
	c := newConn(s, nc)
	s.mu.Lock()
	if s.phase == down {
		s.mu.Unlock()
		_ = nc.Close()
		return
	}
	s.nextPID++
	c.pid = s.nextPID
	s.conns[c] = struct{}{}
	s.mu.Unlock()
	c.serve()
	s.forget(c)
}

// forget is what the end of a backend frees: its locks, its slot, its open transaction.
func (s *Server) forget(c *Conn) {
	_ = c.nc.Close()
	c.rollback()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
	for key, l := range s.locks {
		if l.holder == c {
			delete(s.locks, key)
		}
	}
	for _, sl := range s.slots {
		if sl.active == c {
			sl.active = nil
			sl.busyUntil = time.Now().Add(s.cfg.SlotLinger)
			sl.busyPID = c.pid
		}
	}
	s.cond.Broadcast()
}

func (s *Server) refuseLocked() {
	for _, l := range s.ports {
		if r, ok := l.(refuser); ok {
			r.Refuse(s.phase == down)
		}
	}
}

// Close ends every connection and listener and waits until their goroutines are gone.
func (s *Server) Close() {
	s.mu.Lock()
	s.phase, s.closed = down, true
	ports := s.ports
	s.ports = nil
	s.mu.Unlock()
	for _, l := range ports {
		_ = l.Close()
	}
	s.endConns(nil, func(*Conn) bool { return true })
	_ = s.group.Wait()
}

// endConns ends the connections that match: with an error to the client, or as a crash does, without.
func (s *Server) endConns(why *Error, match func(*Conn) bool) {
	s.mu.Lock()
	var ending []*Conn
	for c := range s.conns {
		if match(c) {
			c.dead = true
			ending = append(ending, c)
		}
	}
	s.cond.Broadcast()
	s.mu.Unlock()
	for _, c := range ending {
		c.kill(why)
	}
}

// wakeStreamsLocked tells the walsenders that there is WAL, or another reason to look.
func (s *Server) wakeStreamsLocked() {
	for c := range s.conns {
		if c.stream != nil {
			c.stream.nudge()
		}
	}
	s.cond.Broadcast()
}

// broadcast is what timers call for statements that wait.
func (s *Server) broadcast() {
	s.mu.Lock()
	s.cond.Broadcast()
	s.mu.Unlock()
}

// awaitLocked waits for a condition or for the end of ctx.
func (s *Server) awaitLocked(ctx context.Context, ok func() bool) error {
	stop := context.AfterFunc(ctx, s.broadcast)
	defer stop()
	for !ok() {
		if err := ctx.Err(); err != nil {
			return err
		}
		s.cond.Wait()
	}
	return nil
}
