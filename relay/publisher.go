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
}

func (p *publisher) Publish(ev *outbox.Event, token uint64, to source.Acker) error {
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
