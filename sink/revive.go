package sink

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"
)

// revive replaces a client that has given itself up. When a broker answers the request for a producer
// id with an error that kgo does not retry, kgo remembers the error and fails every record with it from
// then on, also when the broker has long been well again.
//
// It is called after a broker's error has reached a record, by the goroutine of topics.run.
func (p *Producer) revive(ctx context.Context) error {
	if !p.doubted.Swap(false) {
		return nil
	}
	attempt, cancel := context.WithTimeout(ctx, requestTimeout)
	_, _, err := p.client.Load().ProducerID(attempt) // no request where it has one, or an error of old
	cancel()
	if ctx.Err() != nil || !final(err) {
		return ctx.Err()
	}
	return p.replaceClient(ctx, "it was refused a producer id ("+err.Error()+")")
}

// final is an answer that kgo does not ask again after.
func final(err error) bool {
	kafka, ok := errors.AsType[*kerr.Error](err)
	return ok && !kafka.Retriable
}
