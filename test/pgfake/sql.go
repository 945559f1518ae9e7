package pgfake

import (
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/jackc/pgx/v5/pgproto3"
)

// simple answers a Query message: replication commands on a walsender, SQL on both kinds.
func (c *Conn) simple(text string) error {
	parts := splitSQL(text)
	if len(parts) == 0 {
		c.send(&pgproto3.EmptyQueryResponse{})
		return c.ready()
	}
	for _, sql := range parts {
		if c.replication {
			if handled, err := c.command(sql); err != nil {
				if err := c.fail(err); err != nil {
					return err
				}
				break
			} else if handled {
				continue
			}
		}
		if err := c.runSimple(sql); err != nil {
			if err := c.fail(err); err != nil {
				return err
			}
			break
		}
	}
	if c.status == 'I' {
		c.commit()
	}
	return c.ready()
}

func (c *Conn) runSimple(sql string) error {
	p, perr := c.s.parse(sql, nil)
	if perr != nil {
		return perr
	}
	rows, tag, err := c.run(p, &Call{Conn: c, SQL: sql})
	if err != nil {
		return err
	}
	if len(p.st.Columns) > 0 {
		c.send(fields(p.st.Columns, nil))
		if err := c.sendRows(p.st.Columns, nil, rows); err != nil {
			return err
		}
	}
	c.send(&pgproto3.CommandComplete{CommandTag: []byte(tag)})
	return nil
}

// run executes a statement. In a transaction that has failed only its end is allowed.
func (c *Conn) run(p *plan, call *Call) ([][]any, string, error) {
	if c.status == 'E' && !endsTransaction(p.sql) {
		return nil, "", &Error{Code: "25P02", Message: "current transaction is aborted, commands ignored until end of transaction block"}
	}
	rows, err := p.st.Run(call)
	if err != nil {
		return nil, "", err
	}
	if call.Tag == "" {
		call.Tag = fmt.Sprintf("SELECT %d", len(rows))
	}
	return rows, call.Tag, nil
}

// fail tells the client an error. It returns one only where the connection is over.
func (c *Conn) fail(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return err // the stream used up the connection
	}
	var pg *Error
	if !errors.As(err, &pg) {
		pg = &Error{Code: "XX000", Message: err.Error()}
	}
	c.send(pg.response())
	if c.status == 'T' {
		c.status = 'E'
	}
	if c.status == 'I' {
		c.rollback()
	}
	if pg.fatal() {
		return errors.Join(c.flush(), pg)
	}
	return nil
}

// splitSQL cuts a query at the semicolons that stand outside quotes and comments, and leaves out what
// is empty.
func splitSQL(text string) []string {
	var parts []string
	from := 0
	add := func(to int) {
		if s := strings.TrimSpace(text[from:to]); bare(s) != "" {
			parts = append(parts, s)
		}
	}
	for i := 0; i < len(text); {
		switch {
		case text[i] == ';':
			add(i)
			i++
			from = i
		case text[i] == '\'' || text[i] == '"':
			i += quoted(text[i:])
		default:
			if n := comment(text[i:]); n > 0 {
				i += n
			} else {
				i++
			}
		}
	}
	add(len(text))
	return parts
}

// bare is the statement without the comments and blanks before it.
func bare(sql string) string {
	for {
		sql = strings.TrimSpace(sql)
		n := comment(sql)
		if n == 0 {
			return sql
		}
		sql = sql[n:]
	}
}

// comment is the length of the comment that s begins with; 0 where it begins with none.
func comment(s string) int {
	end := ""
	switch {
	case strings.HasPrefix(s, "--"):
		end = "\n"
	case strings.HasPrefix(s, "/*"):
		end = "*/"
	default:
		return 0
	}
	n := strings.Index(s[2:], end)
	if n < 0 {
		return len(s)
	}
	return 2 + n + len(end)
}

// quoted is the length of the quoted piece that s begins with; a doubled quote begins a new one.
func quoted(s string) int {
	n := strings.IndexByte(s[1:], s[0])
	if n < 0 {
		return len(s)
	}
	return n + 2
}
