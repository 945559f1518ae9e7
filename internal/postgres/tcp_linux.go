package postgres

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// tcpUserTimeout ends a connection whose written bytes are not acknowledged for that long: the peer's
// host is gone. The status of every second is what is written.
const tcpUserTimeout = 15 * time.Second

func userTimeout(network, _ string, c syscall.RawConn) error {
	if network == "unix" {
		return nil
	}
	var err error
	if cerr := c.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(tcpUserTimeout.Milliseconds()))
	}); cerr != nil {
		return cerr
	}
	return err
}
