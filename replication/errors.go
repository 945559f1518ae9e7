package replication

import (
	"errors"
)

// The ends of a session that a supervisor reacts to by themselves. Every other error is a broken
// connection or an answer of the server; a new session is the answer to it.
var (
	errLease     = errors.New("the process was stopped for longer than wal_sender_timeout: another relay may have taken over")
	errWalsender = errors.New("the server has ended the walsender of this relay and the connection does not say so")
	errStopping  = errors.New("the server is shutting down and waits for this relay to leave")
	errUnmatched = errors.New("the stream does not hold the transaction that this relay published last: the server has another history; going on from what its slot has confirmed")
)

// Lost says that the server has another history than the one that this process published from.
func Lost(err error) bool { return errors.Is(err, errUnmatched) || errors.Is(err, errTooMany) }

// Leaving says that the session left because the server is going down.
func Leaving(err error) bool { return errors.Is(err, errStopping) }

// Expired says that the process was stopped for so long that its lease was over.
func Expired(err error) bool { return errors.Is(err, errLease) }
