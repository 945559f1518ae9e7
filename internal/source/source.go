// Package source is what stands between a source of events and the relay: what a source is given to
// publish with, and the ends of a session that are about one event. Both sources speak it, and none
// of them knows Kafka.
package source

import (
	"errors"
	"fmt"

	"walrelay/checkpoint"
	"walrelay/outbox"
)

// Publisher hands events over to Kafka. Publish is called from the session's goroutine only, in
// the order of the source, and must not block.
//
// Publish copies what it keeps of ev. It returns nil when the event is handed over: then it tells to
// exactly once, with token, how that ended. It returns ErrPending when it cannot take the event yet;
// the session offers it again after Wake. Any other error is the event's own: it can never be
// published as it is.
//
// An event that was handed over may wait for a few milliseconds for others to go with it. The session
// calls Hurry before it waits for anything, but for a backlog.
type Publisher interface {
	Publish(ev *outbox.Event, token uint64, to Acker) error
	Hurry()
	Wake() <-chan struct{}
}

// Acker is told the outcome of an event, on whatever goroutine Kafka's answer arrives; it does a few
// atomics and nothing else.
type Acker interface {
	Acked(token uint64, err error)
}

// ErrPending is what a Publisher returns when it cannot take an event yet, for instance because
// Kafka has not said where its topic is. The source keeps the event and offers it again.
var ErrPending = errors.New("the publisher cannot take the event yet")

// A PoisonError is one row that can never be published as it is. Everything before it is published,
// and neither it nor anything after it is confirmed.
type PoisonError struct {
	RowID    int64
	EventID  outbox.EventID
	Position outbox.Position
	Err      error
	Remedy   string // what to type to give the event up; set by the source's GiveUp
}

func (e *PoisonError) Error() string {
	at := ""
	if e.Position != (outbox.Position{}) {
		at = ", position " + e.Position.String()
	}
	text := fmt.Sprintf("event %s (row %d%s) cannot be published: %v; mend the cause and start walrelay again",
		e.EventID, e.RowID, at, e.Err)
	if e.Remedy == "" {
		return text
	}
	return text + "; or give the event up: " + e.Remedy
}
func (e *PoisonError) Unwrap() error { return e.Err }

// A PublishError is an event that Kafka did not take. Everything that was handed over up to Row, the
// last of them, may or may not be on its topic; Last is its place in the stream, if there is one. Alone says that nothing else was in flight, so that Row is the one.
type PublishError struct {
	Last  outbox.Position
	Row   checkpoint.Row
	Alone bool
	Err   error
}

func (e *PublishError) Error() string { return fmt.Sprintf("publish: %v", e.Err) }
func (e *PublishError) Unwrap() error { return e.Err }
