package memnet

import (
	"errors"
	"io"
	"net"
	"time"
)

var errClosed = net.ErrClosed

// Conn is one end of a connection. It obeys the contract of net.Conn, deadlines included.
type Conn struct {
	link          *Link
	in, out       *pipe
	local, remote net.Addr
}

func (c *Conn) Read(b []byte) (int, error) {
	n, err := c.in.read(b)
	return n, c.wrap("read", err)
}

func (c *Conn) Write(b []byte) (int, error) {
	n, cut, err := c.out.write(b)
	if cut {
		c.link.cut(c.out)
	}
	return n, c.wrap("write", err)
}

// Close is an orderly end: the peer reads what was written before and then io.EOF. What this side
// has not read is lost. While the link is stalled the peer notices nothing.
func (c *Conn) Close() error {
	c.in.mu.Lock()
	closed := c.in.closed
	c.in.closed = true
	c.in.mu.Unlock()
	if closed {
		return c.wrap("close", errClosed)
	}
	c.out.end()
	c.in.abandon()
	c.link.closed()
	return nil
}

func (c *Conn) LocalAddr() net.Addr  { return c.local }
func (c *Conn) RemoteAddr() net.Addr { return c.remote }

// Link is the connection that this is an end of, to break it.
func (c *Conn) Link() *Link { return c.link }

func (c *Conn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

func (c *Conn) SetReadDeadline(t time.Time) error {
	c.in.setDeadline(&c.in.readBy, t)
	return nil
}

func (c *Conn) SetWriteDeadline(t time.Time) error {
	c.out.setDeadline(&c.out.writeBy, t)
	return nil
}

// wrap gives errors the shape that package net gives them.
func (c *Conn) wrap(op string, err error) error {
	if err == nil || err == io.EOF {
		return err
	}
	return &net.OpError{Op: op, Net: "tcp", Source: c.local, Addr: c.remote, Err: err}
}
