package pgfake

import (
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgtype"
)

// Conn is one backend. Its own goroutine reads every message; while it streams, a second one writes.
type Conn struct {
	s       *Server
	nc      net.Conn
	be      *pgproto3.Backend // reads only
	pid     uint32
	process string // host of the client: connections of one host are one process
	types   *pgtype.Map

	writing chan struct{} // holds a token while a whole number of messages goes out; a mutex would stop virtual time
	out     []byte        // messages that wait for flush

	// Session state, of the backend's goroutine.
	startup     map[string]string // parameters as the client gave them, names in lower case
	settings    map[string]string // SET
	local       map[string]string // SET LOCAL
	replication bool
	status      byte             // I, T or E, as ReadyForQuery tells it
	ends        []func(bool)     // effects that wait for COMMIT (true) or ROLLBACK
	prepared    map[string]*plan // by name
	portals     map[string]*portal
	skipping    bool // after an error, until Sync

	// Guarded by s.mu.
	stream    *walsender
	dead      bool // it is being ended by the server
	cancelled bool // a cancel request came for the running statement
}

func newConn(s *Server, nc net.Conn) *Conn {
	host, _, err := net.SplitHostPort(nc.RemoteAddr().String())
	if err != nil {
		host = nc.RemoteAddr().String()
	}
	return &Conn{
		s: s, nc: nc, process: host,
		be:       pgproto3.NewBackend(nc, nil),
		types:    pgtype.NewMap(),
		writing:  make(chan struct{}, 1),
		settings: make(map[string]string),
		status:   'I',
		prepared: make(map[string]*plan),
		portals:  make(map[string]*portal),
	}
}

// PID is what pg_backend_pid() returns.
func (c *Conn) PID() uint32 { return c.pid }

// Process is the host that the client dialled from.
func (c *Conn) Process() string { return c.process }

// Replication says whether it is a walsender.
func (c *Conn) Replication() bool { return c.replication }

// Parameter is what the client gave in its start-up packet.
func (c *Conn) Parameter(name string) string { return c.startup[strings.ToLower(name)] }

// setting is a run-time parameter as it is in force.
func (c *Conn) setting(name string) string {
	for _, from := range []map[string]string{c.local, c.settings, c.startup} {
		if v, ok := from[name]; ok {
			return v
		}
	}
	return defaults[name]
}

// defaults are the settings that the server itself obeys.
var defaults = map[string]string{
	"wal_sender_timeout":   "60s",
	"synchronous_commit":   "on",
	"lock_timeout":         "0",
	"statement_timeout":    "0",
	"idle_session_timeout": "0",
}

// duration is a setting with a unit; a plain number is milliseconds.
func (c *Conn) duration(name string) time.Duration {
	d, err := parseDuration(c.setting(name))
	if err != nil {
		return 0
	}
	return d
}

// serve runs the connection to its end.
func (c *Conn) serve() {
	if err := c.start(); err != nil {
		return
	}
	for {
		if err := c.armIdle(); err != nil {
			return
		}
		msg, err := c.be.Receive()
		if err != nil {
			if idle := c.duration("idle_session_timeout"); idle > 0 && isTimeout(err) {
				c.kill(&Error{Severity: "FATAL", Code: "57P05", Message: "terminating connection due to idle-session timeout"})
			}
			return
		}
		if err := c.handle(msg); err != nil {
			return
		}
	}
}

func isTimeout(err error) bool {
	ne, ok := err.(net.Error)
	return ok && ne.Timeout()
}

func (c *Conn) armIdle() error {
	var at time.Time
	if idle := c.duration("idle_session_timeout"); idle > 0 && c.status == 'I' {
		at = time.Now().Add(idle)
	}
	return c.nc.SetReadDeadline(at)
}

// handle answers one message; an error ends the connection.
func (c *Conn) handle(msg pgproto3.FrontendMessage) error {
	c.s.mu.Lock()
	c.cancelled = false
	c.s.mu.Unlock()
	switch msg := msg.(type) {
	case *pgproto3.Terminate:
		return net.ErrClosed
	case *pgproto3.Query:
		return c.simple(msg.String)
	case *pgproto3.Flush:
		return c.flush()
	case *pgproto3.CopyData, *pgproto3.CopyDone, *pgproto3.CopyFail:
		return nil // what a client sent before it saw the end of its stream
	}
	return c.extended(msg)
}

// send queues a message; flush writes what is queued.
func (c *Conn) send(msg pgproto3.BackendMessage) {
	out, err := msg.Encode(c.out)
	if err != nil {
		panic(fmt.Sprintf("pgfake: encode %T: %v", msg, err))
	}
	c.out = out
}

func (c *Conn) flush() error {
	c.writing <- struct{}{}
	defer func() { <-c.writing }()
	_, err := c.nc.Write(c.out)
	c.out = c.out[:0]
	return err
}

// ready ends the answer to a query.
func (c *Conn) ready() error {
	c.send(&pgproto3.ReadyForQuery{TxStatus: c.status})
	return c.flush()
}

// kill ends the connection from outside: the client gets the error if there is room for it on the
// wire, and the end in any case. It is not called with s.mu held.
func (c *Conn) kill(why *Error) {
	defer c.nc.Close()
	if why == nil {
		return
	}
	b, err := why.response().Encode(nil)
	if err != nil {
		return
	}
	// A writer that does not come to its end is blocked by a client that does not read.
	patience := time.NewTimer(killPatience)
	defer patience.Stop()
	select {
	case c.writing <- struct{}{}: // and kept, so that nothing follows the error
		_ = c.nc.SetWriteDeadline(time.Now().Add(killPatience))
		_, _ = c.nc.Write(b)
		_ = c.nc.Close()
		<-c.writing
	case <-patience.C:
	}
}

// killPatience is how long the end of a connection waits for room to say why.
const killPatience = time.Millisecond

// atEnd registers an effect that happens when the transaction ends: with the statement, unless the
// client has begun one.
func (c *Conn) atEnd(f func(commit bool)) { c.ends = append(c.ends, f) }

func (c *Conn) commit()   { c.finish(true) }
func (c *Conn) rollback() { c.finish(false) }

func (c *Conn) finish(commit bool) {
	ends := c.ends
	c.ends, c.local = nil, nil
	if len(ends) == 0 {
		return
	}
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	for _, f := range ends {
		f(commit)
	}
}

// waitLocked waits for a condition under s.mu as a statement waits for a lock: bounded by
// lock_timeout and statement_timeout, ended by a cancel request and by the connection's end.
func (c *Conn) waitLocked(ok func() bool) error {
	began := time.Now()
	type bound struct {
		after time.Duration
		err   *Error
	}
	bounds := []bound{
		{c.duration("lock_timeout"), &Error{Code: "55P03", Message: "canceling statement due to lock timeout"}},
		{c.duration("statement_timeout"), &Error{Code: "57014", Message: "canceling statement due to statement timeout"}},
	}
	for _, b := range bounds {
		if b.after > 0 {
			defer time.AfterFunc(b.after, c.s.broadcast).Stop()
		}
	}
	for !ok() {
		if c.dead {
			return &Error{Severity: "FATAL", Code: "57P01", Message: "terminating connection due to administrator command"}
		}
		if c.cancelled {
			return &Error{Code: "57014", Message: "canceling statement due to user request"}
		}
		for _, b := range bounds {
			if b.after > 0 && time.Since(began) >= b.after {
				return b.err
			}
		}
		c.s.cond.Wait()
	}
	return nil
}
