//go:build !linux

package postgres

import "syscall"

// userTimeout: other systems have no such option; TCP keepalive finds the dead peer.
func userTimeout(string, string, syscall.RawConn) error { return nil }
