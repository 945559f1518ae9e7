package relay

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"walrelay/decoder"
	"walrelay/internal/postgres"
	"walrelay/internal/source"
	"walrelay/polling"
	"walrelay/replication"
	"walrelay/sink"
)

// verdict is what the end of a session asks for.
type verdict uint8

const (
	later verdict = iota // another session after the back-off
	again                // another session now
	exit                 // a person
)

// judge sorts the end of a session by type and code, never by text (DESIGN.md, Failure policy).
func (r *Relay) judge(ctx context.Context, err error) (verdict, error) {
	var (
		fatal   *postgres.FatalError
		mode    *postgres.ModeError
		poison  *source.PoisonError
		publish *source.PublishError
	)
	switch {
	case errors.As(err, &fatal), errors.As(err, &mode):
		return exit, err
	case errors.As(err, &poison):
		return r.judgePoison(ctx, poison, err)
	case !errors.As(err, &publish):
		return later, err
	}
	switch sink.Classify(publish.Err) {
	case sink.Fatal:
		return exit, err
	case sink.Row:
		if publish.Alone {
			poison := &source.PoisonError{RowID: publish.Row.RowID, EventID: publish.Row.EventID, Position: publish.Last, Err: publish.Err}
			return r.judgePoison(ctx, poison, poison)
		}
		// A batch fails for one of its records. Sent again one at a time, the innocent get through and
		// the guilty one is known by name (H19).
		r.log.Warn("kafka rejected a batch: sending its events again one at a time", "error", publish.Err, "up_to_row", publish.Row.RowID)
		r.source.Isolate(publish)
		return again, err
	}
	return later, err
}

// judgePoison halts at a poison event, unless an operator has given it up by marking its row.
func (r *Relay) judgePoison(ctx context.Context, p *source.PoisonError, err error) (verdict, error) {
	given, gerr := r.source.GiveUp(ctx, p)
	switch {
	case gerr != nil:
		return later, errors.Join(err, gerr)
	case given:
		r.log.Warn("event given up: its row is marked as published although it is not", "event_id", p.EventID.String(), "row", p.RowID, "reason", p.Err)
		r.metrics.givenUp.Inc()
		return again, err
	}
	r.metrics.poison.Inc()
	return exit, err
}

// reason is the label by which reconnects are counted.
func reason(err error) string {
	var (
		publish *source.PublishError
		poison  *source.PoisonError
		pg      *pgconn.PgError

		malformed *decoder.MalformedError
	)
	switch {
	case errors.As(err, &publish):
		return "kafka_" + sink.Classify(publish.Err).String()
	case errors.As(err, &poison):
		return "given_up"
	case errors.As(err, &pg):
		return "postgres_" + pg.Code
	case errors.As(err, &malformed):
		return "malformed_stream"
	case replication.Lost(err):
		return "history"
	case replication.Leaving(err):
		return "server_stopping"
	case replication.Expired(err), polling.Expired(err):
		return "lease"
	}
	return "postgres_connection"
}

const (
	backoffMin = 50 * time.Millisecond
	backoffMax = 10 * time.Second
	calm       = 10 * time.Second // a session that lived this long was a good one

	// stuckSessions within stuckTime that end with an error of the server, or with a stream that cannot
	// be read, at one settled position will go on like that for ever (H18).
	stuckSessions = 3
	stuckTime     = time.Minute
)

// backoff spaces the sessions and notices when they get nowhere.
type backoff struct {
	next  time.Duration
	ends  []time.Time // of sessions that ended with such an error at where
	where string
}

func newBackoff() *backoff { return &backoff{next: backoffMin} }

func (b *backoff) reset() { b.next = backoffMin }

// wait sleeps for a random half to whole of the interval, so that relays do not come back in step. It
// returns false when ctx ends first.
func (b *backoff) wait(ctx context.Context) bool {
	d := b.next/2 + rand.N(b.next/2+1)
	b.next = min(2*b.next, backoffMax)
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// stuck returns the error to exit with when sessions get nowhere.
func (b *backoff) stuck(err error, settled string, now time.Time) error {
	pg, answered := errors.AsType[*pgconn.PgError](err)
	_, malformed := errors.AsType[*decoder.MalformedError](err)
	if !malformed && (!answered || passing(pg.Code)) {
		return nil
	}
	if settled != b.where {
		b.where, b.ends = settled, nil
	}
	b.ends = append(b.ends, now)
	if len(b.ends) < stuckSessions {
		return nil
	}
	b.ends = b.ends[len(b.ends)-stuckSessions:]
	if now.Sub(b.ends[0]) > stuckTime {
		return nil
	}
	return &postgres.ModeError{
		Reason: "every session ends with the same error at " + settled,
		Remedy: "see PostgreSQL's log; when it cannot be mended, drop the slot, publish or mark the rows that are left, and start walrelay again",
		Err:    err,
	}
}

// passing errors are a server that stops, starts, is full or fails over. They go away by themselves.
func passing(code string) bool {
	switch code {
	case "57P01", "57P02", "57P03", // shut down, crashed, starting up
		"55006", "55P03", // slot in use, table locked
		"53000", "53100", "53200", // resources
		"53300", "57014", // connections, statement time-out
		"25006",          // read only: a standby
		"40001", "40P01": // conflict, deadlock
		return true
	}
	return code[:2] == "08" // connection
}
