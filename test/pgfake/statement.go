package pgfake

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgtype"
)

// Statement is one statement that the server knows.
type Statement struct {
	Match   func(sql string) bool // see Tagged and Containing
	Params  []uint32              // types of the parameters; nil: what their casts say, else text
	Columns []Column              // of the result; none: a command
	Run     func(*Call) ([][]any, error)
}

// Column is one column of a result.
type Column struct {
	Name string
	OID  uint32
}

// Tagged matches statements that begin with the comment /* walrelay:name */.
func Tagged(name string) func(string) bool {
	prefix := "/* walrelay:" + name + " */"
	return func(sql string) bool { return strings.HasPrefix(strings.TrimSpace(sql), prefix) }
}

// Containing matches statements by a piece of their text, in any case.
func Containing(piece string) func(string) bool {
	piece = strings.ToLower(piece)
	return func(sql string) bool { return strings.Contains(strings.ToLower(sql), piece) }
}

// Handle adds a statement. The one that was added last is asked first, so a test can replace any.
func (s *Server) Handle(st Statement) {
	s.statements.Lock()
	defer s.statements.Unlock()
	s.statements.list = append(s.statements.list, st)
}

// Unhandled are the statements that nobody knew; each was answered with an error.
func (s *Server) Unhandled() []string {
	s.statements.Lock()
	defer s.statements.Unlock()
	return append([]string(nil), s.statements.unhandled...)
}

func (s *Server) lookup(sql string) (Statement, *Error) {
	s.statements.Lock()
	defer s.statements.Unlock()
	list := s.statements.list
	for i := len(list) - 1; i >= 0; i-- {
		if list[i].Match(sql) {
			return list[i], nil
		}
	}
	s.statements.unhandled = append(s.statements.unhandled, sql)
	return Statement{}, &Error{Code: "0A000", Message: "pgfake has no handler for this statement", Detail: sql}
}

// Call is one execution of a statement.
type Call struct {
	Conn *Conn
	SQL  string // as it was sent, tag included
	Tag  string // of CommandComplete; default: SELECT and the number of rows

	oids    []uint32
	formats []int16
	args    [][]byte
}

// NArgs is the number of parameters.
func (c *Call) NArgs() int { return len(c.args) }

// Scan decodes parameter i, counted from 0, into dst.
func (c *Call) Scan(i int, dst any) error {
	if i >= len(c.args) {
		return &Error{Code: "08P01", Message: fmt.Sprintf("parameter %d is missing", i+1)}
	}
	if err := c.Conn.types.Scan(c.oids[i], c.formats[i], c.args[i], dst); err != nil {
		return &Error{Code: "22P02", Message: fmt.Sprintf("parameter %d: %v", i+1, err)}
	}
	return nil
}

// plan is a statement that was parsed.
type plan struct {
	sql    string
	st     Statement
	params []uint32
}

var (
	paramCast = regexp.MustCompile(`\$(\d+)(?:\s*::\s*([a-z][a-z0-9_]*(?:\[\])?))?`)
	castOIDs  = map[string]uint32{
		"bool": pgtype.BoolOID, "boolean": pgtype.BoolOID, "text": pgtype.TextOID, "uuid": pgtype.UUIDOID,
		"int": pgtype.Int4OID, "int4": pgtype.Int4OID, "integer": pgtype.Int4OID,
		"int8": pgtype.Int8OID, "bigint": pgtype.Int8OID, "oid": pgtype.OIDOID,
		"timestamptz": pgtype.TimestamptzOID, "jsonb": pgtype.JSONBOID, "xid": pgtype.XIDOID, "name": pgtype.NameOID,
		"int[]": pgtype.Int4ArrayOID, "int4[]": pgtype.Int4ArrayOID, "integer[]": pgtype.Int4ArrayOID,
		"int8[]": pgtype.Int8ArrayOID, "bigint[]": pgtype.Int8ArrayOID,
		"text[]": pgtype.TextArrayOID, "uuid[]": pgtype.UUIDArrayOID, "bool[]": pgtype.BoolArrayOID, "boolean[]": pgtype.BoolArrayOID,
	}
)

// parse finds a statement and the types of its parameters: what the client says, else what the
// handler says, else what a cast in the text says, else text.
func (s *Server) parse(sql string, given []uint32) (*plan, *Error) {
	st, err := s.lookup(sql)
	if err != nil {
		return nil, err
	}
	p := &plan{sql: sql, st: st}
	for _, m := range paramCast.FindAllStringSubmatch(sql, -1) {
		n, err := strconv.Atoi(m[1])
		if err != nil || n < 1 || n > 1<<16 {
			continue
		}
		for len(p.params) < n {
			p.params = append(p.params, 0)
		}
		if oid := castOIDs[m[2]]; oid != 0 && p.params[n-1] == 0 {
			p.params[n-1] = oid
		}
	}
	for i := range p.params {
		switch {
		case i < len(given) && given[i] != 0:
			p.params[i] = given[i]
		case i < len(st.Params):
			p.params[i] = st.Params[i]
		case p.params[i] == 0:
			p.params[i] = pgtype.TextOID
		}
	}
	return p, nil
}

// fields describes the result in the formats that the client asked for.
func fields(columns []Column, formats []int16) *pgproto3.RowDescription {
	d := &pgproto3.RowDescription{}
	for i, col := range columns {
		d.Fields = append(d.Fields, pgproto3.FieldDescription{
			Name: []byte(col.Name), DataTypeOID: col.OID, DataTypeSize: -1, TypeModifier: -1, Format: format(formats, i),
		})
	}
	return d
}

// format applies the rule of Bind: none is text, one is for all, else one for each.
func format(formats []int16, i int) int16 {
	switch {
	case len(formats) == 0:
		return 0
	case len(formats) == 1:
		return formats[0]
	case i < len(formats):
		return formats[i]
	}
	return 0
}

// sendRows encodes the rows of a result.
func (c *Conn) sendRows(columns []Column, formats []int16, rows [][]any) *Error {
	for _, row := range rows {
		if len(row) != len(columns) {
			return &Error{Code: "XX000", Message: fmt.Sprintf("pgfake: a handler returned %d values for %d columns", len(row), len(columns))}
		}
		msg := &pgproto3.DataRow{Values: make([][]byte, len(row))}
		for i, v := range row {
			b, err := c.types.Encode(columns[i].OID, format(formats, i), v, make([]byte, 0, 16))
			if err != nil {
				return &Error{Code: "XX000", Message: fmt.Sprintf("pgfake: column %q: %v", columns[i].Name, err)}
			}
			msg.Values[i] = b
		}
		c.send(msg)
	}
	return nil
}
