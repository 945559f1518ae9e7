package pgfake

import (
	"fmt"

	"github.com/jackc/pgx/v5/pgproto3"
)

// portal is a bound statement.
type portal struct {
	plan    *plan
	call    *Call
	formats []int16 // of the result
}

// extended answers one message of the extended protocol. After an error everything is passed over
// until Sync.
func (c *Conn) extended(msg pgproto3.FrontendMessage) error {
	if _, sync := msg.(*pgproto3.Sync); sync {
		c.skipping = false
		clear(c.portals)
		if c.status == 'I' {
			c.commit()
		}
		return c.ready()
	}
	if c.skipping {
		return nil
	}
	if c.replication {
		c.skipping = true
		return c.fail(&Error{Code: "08P01", Message: "extended query protocol not supported in a replication connection"})
	}
	if err := c.step(msg); err != nil {
		c.skipping = true
		return c.fail(err)
	}
	return nil
}

func (c *Conn) step(msg pgproto3.FrontendMessage) error {
	switch msg := msg.(type) {
	case *pgproto3.Parse:
		p, err := c.s.parse(msg.Query, msg.ParameterOIDs)
		if err != nil {
			return err
		}
		c.prepared[msg.Name] = p
		c.send(&pgproto3.ParseComplete{})
	case *pgproto3.Bind:
		return c.bind(msg)
	case *pgproto3.Describe:
		return c.describe(msg)
	case *pgproto3.Execute:
		return c.execute(msg)
	case *pgproto3.Close:
		if msg.ObjectType == 'S' {
			delete(c.prepared, msg.Name)
		} else {
			delete(c.portals, msg.Name)
		}
		c.send(&pgproto3.CloseComplete{})
	default:
		return &Error{Severity: "FATAL", Code: "08P01", Message: fmt.Sprintf("pgfake does not know message %T", msg)}
	}
	return nil
}

func (c *Conn) bind(msg *pgproto3.Bind) error {
	p, ok := c.prepared[msg.PreparedStatement]
	if !ok {
		return &Error{Code: "26000", Message: fmt.Sprintf("prepared statement %q does not exist", msg.PreparedStatement)}
	}
	if len(msg.Parameters) != len(p.params) {
		return &Error{Code: "08P01", Message: fmt.Sprintf("bind message supplies %d parameters, but the statement requires %d", len(msg.Parameters), len(p.params))}
	}
	call := &Call{Conn: c, SQL: p.sql, oids: p.params}
	for i, arg := range msg.Parameters {
		if arg != nil { // the message's bytes are the reader's
			arg = append(make([]byte, 0, len(arg)), arg...)
		}
		call.args = append(call.args, arg)
		call.formats = append(call.formats, format(msg.ParameterFormatCodes, i))
	}
	c.portals[msg.DestinationPortal] = &portal{plan: p, call: call, formats: append([]int16(nil), msg.ResultFormatCodes...)}
	c.send(&pgproto3.BindComplete{})
	return nil
}

func (c *Conn) describe(msg *pgproto3.Describe) error {
	var columns []Column
	var formats []int16
	if msg.ObjectType == 'S' {
		p, ok := c.prepared[msg.Name]
		if !ok {
			return &Error{Code: "26000", Message: fmt.Sprintf("prepared statement %q does not exist", msg.Name)}
		}
		c.send(&pgproto3.ParameterDescription{ParameterOIDs: p.params})
		columns = p.st.Columns
	} else {
		po, ok := c.portals[msg.Name]
		if !ok {
			return &Error{Code: "34000", Message: fmt.Sprintf("portal %q does not exist", msg.Name)}
		}
		columns, formats = po.plan.st.Columns, po.formats
	}
	if len(columns) == 0 {
		c.send(&pgproto3.NoData{})
		return nil
	}
	c.send(fields(columns, formats))
	return nil
}

func (c *Conn) execute(msg *pgproto3.Execute) error {
	po, ok := c.portals[msg.Portal]
	if !ok {
		return &Error{Code: "34000", Message: fmt.Sprintf("portal %q does not exist", msg.Portal)}
	}
	rows, tag, err := c.run(po.plan, po.call)
	if err != nil {
		return err
	}
	if err := c.sendRows(po.plan.st.Columns, po.formats, rows); err != nil {
		return err
	}
	c.send(&pgproto3.CommandComplete{CommandTag: []byte(tag)})
	return nil
}
