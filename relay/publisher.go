package relay

import (
	"errors"
	"time"

	"walrelay/internal/source"
	"walrelay/outbox"
	"walrelay/router"
	"walrelay/sink"
)

// publisher is the way of an event from the source's goroutine to Kafka: routed into a record that is
// Kafka's own, then handed over. It is the same for every session.
type publisher struct {
	router *router.Router
	sink   *sink.Producer
	trace  Trace // nil: nobody looks
}

// Trace is told when an event is handed over and when Kafka has acknowledged it. Both are on the way of
// events: it returns at once. Acked comes on Kafka's goroutine.
type Trace interface {
	Received(outbox.EventID)
	Acked(outbox.EventID)
}

// traced tells of one event's acknowledgement.
type traced struct {
	source.Acker
	trace Trace
	id    outbox.EventID
}

func (t traced) Acked(token uint64, err error) {
	if err == nil {
		t.trace.Acked(t.id)
	}
	t.Acker.Acked(token, err)
}

func (p *publisher) Publish(ev *outbox.Event, token uint64, to source.Acker) error {
	if p.trace != nil {
		p.trace.Received(ev.ID)
		to = traced{to, p.trace, ev.ID}
	}
	e := p.sink.Acquire()
	err := p.router.Route(ev, &e.Record)
	if err == nil {
		err = p.sink.Produce(e, to, token)
	}
	if err == nil {
		return nil
	}
	p.sink.Release(e)
	if errors.Is(err, sink.ErrPending) {
		return source.ErrPending
	}
	return err
}

func (p *publisher) Hurry() { p.sink.Hurry() }

func (p *publisher) Wake() <-chan struct{} { return p.sink.Wake() }

// drainPoll is how often the number of outstanding records is looked at between two sessions. Nobody
// waits for it: there is no session to serve.
const drainPoll = 5 * time.Millisecond
