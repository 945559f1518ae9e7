package replication

import (
	"errors"
	"fmt"

	"walrelay/checkpoint"
	"walrelay/outbox"
)

// ErrPending is what a Publisher returns when it cannot take an event yet, for instance because
// Kafka has not said where its topic is. The session keeps the event and offers it again.
var ErrPending = errors.New("the publisher cannot take the event yet")

// The ends of a session that a supervisor reacts to by themselves. Every other error is a broken
// connection or an answer of the server; a new session is the answer to it.
var (
	errLease     = errors.New("the process was stopped for longer than wal_sender_timeout: another relay may have taken over")
	errWalsender = errors.New("the server has ended the walsender of this relay and the connection does not say so")
	errStopping  = errors.New("the server is shutting down and waits for this relay to leave")
	errUnmatched = errors.New("the stream does not hold the transaction that this relay published last: the server has another history; going on from what its slot has confirmed")
)

// A ModeError says that the stream cannot be had, or would not carry every row, until an operator
// acts. Remedy is what to type.
type ModeError struct {
	Reason string
	Remedy string
	Err    error
}

func (e *ModeError) Error() string { return describe(e.Reason, e.Remedy, e.Err) }
func (e *ModeError) Unwrap() error { return e.Err }

// A FatalError is a mistake in the configuration or in the database that no retry mends.
type FatalError struct {
	Reason string
	Remedy string
	Err    error
}

func (e *FatalError) Error() string { return describe(e.Reason, e.Remedy, e.Err) }
func (e *FatalError) Unwrap() error { return e.Err }

func describe(reason, remedy string, err error) string {
	if err != nil {
		reason = fmt.Sprintf("%s (%v)", reason, err)
	}
	if remedy == "" {
		return reason
	}
	return reason + ": " + remedy
}

// A PoisonError is one row that can never be published as it is. Everything before it is published,
// and neither it nor anything after it is confirmed.
type PoisonError struct {
	RowID    int64
	EventID  outbox.EventID
	Position outbox.Position
	Err      error
	Remedy   string // what to type to give the event up; set by Source.GiveUp
}

func (e *PoisonError) Error() string {
	text := fmt.Sprintf("event %s (row %d, position %s) cannot be published: %v; mend the cause and start walrelay again",
		e.EventID, e.RowID, e.Position, e.Err)
	if e.Remedy == "" {
		return text
	}
	return text + "; or give the event up: " + e.Remedy
}
func (e *PoisonError) Unwrap() error { return e.Err }

// A PublishError is an event that Kafka did not take. Everything that was handed over up to Last may
// or may not be on its topic. Alone says that nothing else was in flight, so that Row is the one.
type PublishError struct {
	Last  outbox.Position
	Row   checkpoint.Row
	Alone bool
	Err   error
}

func (e *PublishError) Error() string { return fmt.Sprintf("publish: %v", e.Err) }
func (e *PublishError) Unwrap() error { return e.Err }

// Lost says that the server has another history than the one that this process published from.
func Lost(err error) bool { return errors.Is(err, errUnmatched) || errors.Is(err, errTooMany) }

// Leaving says that the session left because the server is going down.
func Leaving(err error) bool { return errors.Is(err, errStopping) }

// Expired says that the process was stopped for so long that its lease was over.
func Expired(err error) bool { return errors.Is(err, errLease) }
