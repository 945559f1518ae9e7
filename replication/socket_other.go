//go:build !linux

package replication

import "net"

// aside: only Linux has been measured.
func aside(conn net.Conn) (net.Conn, error) { return conn, nil }
