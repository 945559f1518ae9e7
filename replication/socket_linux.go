package replication

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// socket is a connection outside of the runtime's poller. The poller's thread sleeps on every
// connection at once, so each message that a walsender sends wakes it, whether anybody reads or not,
// and both sides pay for that: the sender, for which it is most of what sending costs, too. A socket
// is waited for only by the goroutine that reads it, and only when there is nothing to read.
//
// One goroutine reads and writes; any may set a read deadline, which interrupts a read, and close.
type socket struct {
	net.Conn // the connection it was, closed; for its addresses
	fd, wake int
	deadline atomic.Int64 // of reads; nanoseconds since 1970, 0: none
	closed   atomic.Bool
	using    sync.RWMutex // a descriptor is closed when nobody is in a system call with it
}

// aside takes a plain TCP or unix connection out of the runtime's poller. Others (TLS, memory) stay as
// they are.
func aside(conn net.Conn) (net.Conn, error) {
	c, ok := conn.(syscall.Conn)
	if !ok {
		return conn, nil
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("take the socket: %w", err)
	}
	s := &socket{Conn: conn, fd: -1}
	cerr := raw.Control(func(fd uintptr) { s.fd, err = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0) })
	if err := errors.Join(cerr, err); err != nil {
		return nil, fmt.Errorf("take the socket: %w", err)
	}
	if s.wake, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		unix.Close(s.fd)
		return nil, fmt.Errorf("take the socket: %w", err)
	}
	return s, conn.Close()
}

func (s *socket) Read(p []byte) (int, error) {
	s.using.RLock()
	defer s.using.RUnlock()
	for {
		if s.closed.Load() {
			return 0, net.ErrClosed
		}
		deadline, now := s.deadline.Load(), time.Now().UnixNano()
		if deadline != 0 && deadline <= now {
			return 0, os.ErrDeadlineExceeded
		}
		switch n, err := unix.Read(s.fd, p); {
		case n > 0:
			return n, nil
		case err == nil && len(p) > 0:
			return 0, io.EOF
		case err == unix.EINTR:
		case err == unix.EAGAIN:
			if err := s.wait(unix.POLLIN, deadline, now); err != nil {
				return 0, err
			}
		default:
			return 0, os.NewSyscallError("read", err)
		}
	}
}

// wait returns when the socket is ready, the deadline has come, or somebody has changed something.
func (s *socket) wait(events int16, deadline, now int64) error {
	var limit *unix.Timespec
	if deadline != 0 {
		t := unix.NsecToTimespec(deadline - now)
		limit = &t
	}
	fds := [2]unix.PollFd{{Fd: int32(s.fd), Events: events}, {Fd: int32(s.wake), Events: unix.POLLIN}}
	if _, err := unix.Ppoll(fds[:], limit, nil); err != nil && err != unix.EINTR {
		return os.NewSyscallError("ppoll", err)
	}
	if fds[1].Revents != 0 {
		var count [8]byte
		_, _ = unix.Read(s.wake, count[:])
	}
	return nil
}

func (s *socket) Write(p []byte) (int, error) {
	s.using.RLock()
	defer s.using.RUnlock()
	deadline := time.Now().Add(statusTimeout).UnixNano()
	written := 0
	for written < len(p) {
		if s.closed.Load() {
			return written, net.ErrClosed
		}
		n, err := unix.SendmsgN(s.fd, p[written:], nil, nil, unix.MSG_NOSIGNAL)
		switch {
		case err == nil:
			written += n
		case err == unix.EINTR:
		case err == unix.EAGAIN:
			now := time.Now().UnixNano()
			if deadline <= now {
				return written, os.ErrDeadlineExceeded
			}
			if err := s.wait(unix.POLLOUT, deadline, now); err != nil {
				return written, err
			}
		default:
			return written, os.NewSyscallError("write", err)
		}
	}
	return written, nil
}

func (s *socket) SetReadDeadline(t time.Time) error {
	var n int64
	if !t.IsZero() {
		n = t.UnixNano()
	}
	s.deadline.Store(n)
	return s.nudge()
}

// SetWriteDeadline: each write has statusTimeout.
func (s *socket) SetWriteDeadline(time.Time) error { return nil }

func (s *socket) nudge() error {
	s.using.RLock()
	defer s.using.RUnlock()
	if s.closed.Load() {
		return net.ErrClosed
	}
	_, err := unix.Write(s.wake, binary.NativeEndian.AppendUint64(nil, 1))
	if err == unix.EAGAIN {
		err = nil // it is full of nudges
	}
	return os.NewSyscallError("write", err)
}

func (s *socket) Close() error {
	if s.closed.Swap(true) {
		return net.ErrClosed
	}
	// Whoever waits returns.
	_ = unix.Shutdown(s.fd, unix.SHUT_RDWR)
	s.using.Lock()
	defer s.using.Unlock()
	return errors.Join(os.NewSyscallError("close", unix.Close(s.fd)), os.NewSyscallError("close", unix.Close(s.wake)))
}

// gather reads what piles up while nobody waits: until p is half full, nothing more comes, or the
// pauses are used up. The pauses stop the thread; a goroutine that sleeps is woken by the poller.
func (s *socket) gather(p []byte) int {
	s.using.RLock()
	defer s.using.RUnlock()
	got := 0
	for range gatherPauses {
		if s.closed.Load() {
			break
		}
		t := unix.NsecToTimespec(gatherPause.Nanoseconds())
		_ = unix.Nanosleep(&t, nil)
		n, err := unix.Read(s.fd, p[got:])
		if n <= 0 || err != nil {
			break // Read will say why
		}
		if got += n; got >= len(p)/2 {
			break
		}
	}
	return got
}
