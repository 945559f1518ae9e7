package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"walrelay/test/harness/oracle"
)

const (
	writers = 4
	keys    = 15 // of each writer

	// commitLimit bounds one transaction; a table stays locked for less than that.
	commitLimit = 40 * time.Second
)

// write is one service that writes until the run stops it. A transaction that failed is not tried
// again: the service would have told its caller.
func (w *world) write(ctx context.Context, writer *oracle.Writer, number int) error {
	r := rand.New(rand.NewPCG(w.seed, uint64(1000+number)))
	for n := 0; ctx.Err() == nil; {
		events := make([]oracle.Event, size(r))
		for i := range events {
			events[i] = w.event(r, fmt.Sprintf("w%d", number), n)
			n++
		}
		if err := w.commit(ctx, writer, events); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(10+r.IntN(90)) * time.Millisecond): // a service has a pace
		}
	}
	return nil
}

// commit waits while an operator keeps services from writing. It is not interrupted by the end of the
// run: a transaction ends one way or the other.
func (w *world) commit(ctx context.Context, writer *oracle.Writer, events []oracle.Event) error {
	w.writing.RLock()
	defer w.writing.RUnlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), commitLimit)
	defer cancel()
	if err := writer.Commit(ctx, events...); errors.Is(err, oracle.ErrUnknown) {
		return err
	}
	return nil
}

// size is how many rows a transaction has: few, mostly.
func size(r *rand.Rand) int {
	switch p := r.IntN(1000); {
	case p < 900:
		return 1 + r.IntN(4)
	case p < 996:
		return 5 + r.IntN(40)
	}
	return 500 + r.IntN(1500)
}

// event is the n-th of a writer. jsonb keeps its payload as it is written here: keys by length, one
// space behind each colon and comma.
func (w *world) event(r *rand.Rand, writer string, n int) oracle.Event {
	pad := r.IntN(600)
	if r.IntN(500) == 0 {
		pad = 100_000
	}
	e := oracle.Event{
		AggregateType: "Order", AggregateID: fmt.Sprintf("%s-k%d", writer, n%keys), EventType: "OrderPlaced",
		Payload: fmt.Sprintf(`{"n": %d, "pad": "%s", "writer": "%s"}`, n, strings.Repeat("x", pad), writer),
		Headers: fmt.Sprintf(`{"trace": "%s-%d"}`, writer, n),
	}
	switch n % 8 {
	case 0, 1:
		e.EventType = "OrderPaid"
	case 2:
		e.Topic = w.auditTopic()
	case 3:
		e.PartitionKey = writer + "-customer"
	}
	return e
}

// topicOf is where the documentation says that the event goes.
func topicOf(service string, e oracle.Event) string {
	switch {
	case e.Topic != "":
		return e.Topic
	case e.EventType == "OrderPaid":
		return service + ".order.paid"
	}
	return service + ".order.placed"
}

// traceOf is the value of the event's one header.
func traceOf(e oracle.Event) string {
	return strings.TrimSuffix(strings.TrimPrefix(e.Headers, `{"trace": "`), `"}`)
}
