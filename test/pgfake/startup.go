package pgfake

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"
)

// versions are the minors that FACTS E was found on.
var versions = map[int]string{14: "14.24", 15: "15.19", 16: "16.15", 17: "17.11", 18: "18.6"}

// start answers the start-up packet: everybody is trusted.
func (c *Conn) start() error {
	for {
		msg, err := c.be.ReceiveStartupMessage()
		if err != nil {
			return err
		}
		switch msg := msg.(type) {
		case *pgproto3.SSLRequest, *pgproto3.GSSEncRequest:
			if _, err := c.nc.Write([]byte{'N'}); err != nil {
				return err
			}
		case *pgproto3.CancelRequest:
			c.s.cancel(msg.ProcessID, msg.SecretKey)
			return errors.New("cancel request")
		case *pgproto3.StartupMessage:
			return c.welcome(msg.Parameters)
		}
	}
}

func (c *Conn) welcome(params map[string]string) error {
	startup := make(map[string]string, len(params))
	for k, v := range params {
		startup[strings.ToLower(k)] = v
	}
	for k, v := range parseOptions(startup["options"]) {
		startup[strings.ToLower(k)] = v
	}
	c.s.mu.Lock() // who terminates connections looks at these
	c.startup = startup
	c.replication = startup["replication"] == "database"
	c.s.mu.Unlock()

	if err := c.refusal(); err != nil {
		c.send(err.response())
		return errors.Join(c.flush(), err)
	}
	c.send(&pgproto3.AuthenticationOk{})
	for _, p := range [][2]string{
		{"server_version", versions[c.s.cfg.Major]},
		{"server_encoding", "UTF8"}, {"client_encoding", "UTF8"},
		{"DateStyle", "ISO, YMD"}, {"IntervalStyle", "postgres"}, {"TimeZone", "UTC"},
		{"integer_datetimes", "on"}, {"standard_conforming_strings", "on"},
		{"is_superuser", "off"}, {"session_authorization", startup["user"]},
		{"application_name", startup["application_name"]},
	} {
		c.send(&pgproto3.ParameterStatus{Name: p[0], Value: p[1]})
	}
	c.send(&pgproto3.BackendKeyData{ProcessID: c.pid, SecretKey: secret(c.pid)})
	return c.ready()
}

// refusal is why the connection is not let in.
func (c *Conn) refusal() *Error {
	c.s.mu.Lock()
	phase, dead := c.s.phase, c.dead
	c.s.mu.Unlock()
	switch {
	case phase == stopping || dead:
		return &Error{Severity: "FATAL", Code: "57P03", Message: "the database system is shutting down"}
	case phase == starting:
		return &Error{Severity: "FATAL", Code: "57P03", Message: "the database system is starting up"}
	case c.startup["database"] != c.s.cfg.Database:
		return &Error{Severity: "FATAL", Code: "3D000", Message: fmt.Sprintf("database %q does not exist", c.startup["database"])}
	}
	for _, name := range []string{"wal_sender_timeout", "lock_timeout", "statement_timeout", "idle_session_timeout"} {
		if _, err := parseDuration(c.setting(name)); err != nil {
			return &Error{Severity: "FATAL", Code: "22023", Message: fmt.Sprintf("invalid value for parameter %q: %q", name, c.setting(name))}
		}
	}
	return nil
}

func secret(pid uint32) []byte { return binary.BigEndian.AppendUint32(nil, pid*2654435761) }

// cancel reaches a statement that waits.
func (s *Server) cancel(pid uint32, key []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		if c.pid == pid && string(secret(pid)) == string(key) {
			c.cancelled = true
		}
	}
	s.cond.Broadcast()
}

// parseOptions reads the options parameter: -c name=value, and --name=value.
func parseOptions(s string) map[string]string {
	out := make(map[string]string)
	fields := strings.Fields(s)
	for i := 0; i < len(fields); i++ {
		f := fields[i]
		switch {
		case f == "-c" && i+1 < len(fields):
			i++
			f = fields[i]
		case strings.HasPrefix(f, "-c"):
			f = f[2:]
		case strings.HasPrefix(f, "--"):
			f = f[2:]
		default:
			continue
		}
		if name, value, ok := strings.Cut(f, "="); ok {
			out[name] = value
		}
	}
	return out
}

// parseDuration reads a time as a run-time parameter has it; without a unit it is milliseconds.
func parseDuration(s string) (time.Duration, error) {
	s = strings.TrimSpace(s)
	n := len(s)
	for n > 0 && (s[n-1] < '0' || s[n-1] > '9') {
		n--
	}
	v, err := strconv.ParseInt(s[:n], 10, 64)
	if err != nil || v < 0 {
		return 0, fmt.Errorf("%q is not a duration", s)
	}
	units := map[string]time.Duration{"": time.Millisecond, "us": time.Microsecond, "ms": time.Millisecond,
		"s": time.Second, "min": time.Minute, "h": time.Hour, "d": 24 * time.Hour}
	unit, ok := units[strings.TrimSpace(s[n:])]
	if !ok {
		return 0, fmt.Errorf("%q is not a duration", s)
	}
	return time.Duration(v) * unit, nil
}
