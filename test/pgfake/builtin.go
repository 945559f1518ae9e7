package pgfake

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgtype"
)

// builtin registers what every connection may send: transaction control, settings, advisory locks.
func (s *Server) builtin() {
	for _, verb := range []string{"begin", "start transaction", "commit", "end", "rollback", "abort"} {
		s.Handle(Statement{Match: verbIs(verb), Run: transaction})
	}
	s.Handle(Statement{Match: verbIs("set"), Run: set})
	s.Handle(Statement{Match: verbIs("reset"), Run: reset})
	s.Handle(Statement{Match: verbIs("discard"), Run: command("DISCARD ALL")})
	s.Handle(Statement{Match: verbIs("deallocate"), Run: command("DEALLOCATE")})
	s.Handle(Statement{
		Match:   func(sql string) bool { return strings.EqualFold(bare(sql), "select 1") },
		Columns: []Column{{"?column?", pgtype.Int4OID}},
		Run:     func(*Call) ([][]any, error) { return [][]any{{int32(1)}}, nil },
	})
	s.Handle(Statement{
		Match:   Containing("pg_try_advisory_lock("),
		Params:  []uint32{pgtype.Int8OID},
		Columns: []Column{{"pg_try_advisory_lock", pgtype.BoolOID}},
		Run: func(c *Call) ([][]any, error) {
			return advisory(c, func(key int64) bool { return s.tryLock(c.Conn, key) })
		},
	})
	s.Handle(Statement{
		Match:   Containing("pg_advisory_unlock("),
		Params:  []uint32{pgtype.Int8OID},
		Columns: []Column{{"pg_advisory_unlock", pgtype.BoolOID}},
		Run: func(c *Call) ([][]any, error) {
			return advisory(c, func(key int64) bool { return s.unlock(c.Conn, key) })
		},
	})
}

// verbIs matches statements that begin with the words.
func verbIs(words string) func(string) bool {
	return func(sql string) bool {
		sql = strings.ToLower(bare(sql))
		rest, ok := strings.CutPrefix(sql, words)
		return ok && (rest == "" || strings.IndexAny(rest, " \t\n;") == 0)
	}
}

func command(tag string) func(*Call) ([][]any, error) {
	return func(c *Call) ([][]any, error) {
		c.Tag = tag
		return nil, nil
	}
}

// endsTransaction says whether a statement is allowed in a transaction that has failed.
func endsTransaction(sql string) bool {
	for _, verb := range []string{"commit", "end", "rollback", "abort"} {
		if verbIs(verb)(sql) {
			return true
		}
	}
	return false
}

func transaction(call *Call) ([][]any, error) {
	c := call.Conn
	switch {
	case verbIs("begin")(call.SQL), verbIs("start transaction")(call.SQL):
		call.Tag = "BEGIN"
		c.status = 'T'
	case (verbIs("commit")(call.SQL) || verbIs("end")(call.SQL)) && c.status != 'E':
		call.Tag = "COMMIT"
		c.status = 'I'
		c.commit()
	default:
		call.Tag = "ROLLBACK"
		c.status = 'I'
		c.rollback()
	}
	return nil, nil
}

var setting = regexp.MustCompile(`(?is)^set\s+(session\s+|local\s+)?([a-z_.]+)\s*(?:=|\bto\b)\s*(.*)$`)

func set(call *Call) ([][]any, error) {
	m := setting.FindStringSubmatch(bare(call.SQL))
	if m == nil {
		return nil, &Error{Code: "42601", Message: "pgfake cannot read this SET: " + call.SQL}
	}
	c, name, value := call.Conn, strings.ToLower(m[2]), strings.Trim(strings.TrimSpace(m[3]), "'")
	if strings.HasPrefix(strings.ToLower(m[1]), "local") {
		if c.local == nil {
			c.local = make(map[string]string)
		}
		c.local[name] = value
	} else {
		c.settings[name] = value
	}
	call.Tag = "SET"
	return nil, nil
}

func reset(call *Call) ([][]any, error) {
	_, name, _ := strings.Cut(strings.ToLower(bare(call.SQL)), " ")
	delete(call.Conn.settings, strings.TrimSpace(name))
	call.Tag = "RESET"
	return nil, nil
}

// lock is a session's advisory lock.
type lock struct {
	holder *Conn
	count  int
}

// tryLock is pg_try_advisory_lock: true where nobody else holds the key.
func (s *Server) tryLock(c *Conn, key int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	l, taken := s.locks[key]
	switch {
	case !taken:
		s.locks[key] = &lock{c, 1}
	case l.holder != c:
		return false
	default:
		l.count++
	}
	return true
}

func (s *Server) unlock(c *Conn, key int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	l, taken := s.locks[key]
	if !taken || l.holder != c {
		return false
	}
	if l.count--; l.count == 0 {
		delete(s.locks, key)
		s.cond.Broadcast()
	}
	return true
}

// LockHolder is the connection that holds an advisory lock; nil when it is free.
func (s *Server) LockHolder(key int64) *Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l, ok := s.locks[key]; ok {
		return l.holder
	}
	return nil
}

// HoldLock takes an advisory lock for somebody who is not on the wire, such as a relay on another
// host, until ReleaseLock. It is false where the lock is taken.
func (s *Server) HoldLock(key int64) bool { return s.tryLock(nil, key) }

// ReleaseLock ends HoldLock.
func (s *Server) ReleaseLock(key int64) bool { return s.unlock(nil, key) }

var lockArgs = regexp.MustCompile(`(?i)pg_(?:try_)?advisory_(?:un)?lock\(([^)]*)\)`)

// advisory reads the key, one bigint or two integers, given as parameters or as literals.
func advisory(c *Call, do func(key int64) bool) ([][]any, error) {
	var keys []int64
	for i := range c.NArgs() {
		var v int64
		if err := c.Scan(i, &v); err != nil {
			return nil, err
		}
		keys = append(keys, v)
	}
	if m := lockArgs.FindStringSubmatch(c.SQL); m != nil && len(keys) == 0 {
		for _, f := range strings.Split(m[1], ",") {
			f, _, _ = strings.Cut(f, "::")
			v, err := strconv.ParseInt(strings.TrimSpace(f), 10, 64)
			if err != nil {
				return nil, &Error{Code: "42601", Message: "pgfake cannot read this lock key: " + m[1]}
			}
			keys = append(keys, v)
		}
	}
	switch len(keys) {
	case 1:
		return [][]any{{do(keys[0])}}, nil
	case 2:
		return [][]any{{do(keys[0]<<32 | int64(uint32(keys[1])))}}, nil
	}
	return nil, &Error{Code: "42883", Message: "an advisory lock has one key or two"}
}
