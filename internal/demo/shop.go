package demo

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"walrelay/internal/config"
	"walrelay/outbox"
	"walrelay/router"
)

// ordersTable is the service's own data. The ids begin where they look like ids.
const ordersTable = `create table orders (
	id bigint generated always as identity (start with 1001) primary key,
	customer text not null,
	total numeric(10,2) not null,
	placed_at timestamptz not null default now()
)`

// declineOneIn orders is rolled back after its events were written: none of them may be seen.
const declineOneIn = 10

var customers = []string{"Ada", "Edsger", "Grace", "Leslie", "Barbara", "Tony"}

// kinds are the events of an order: the first is always written, the others often.
var kinds = []struct{ aggregate, event string }{
	{"Order", "OrderCreated"},
	{"Payment", "PaymentAuthorized"},
	{"Order", "OrderConfirmed"},
}

// shop is a service that has never heard of walrelay: it writes orders and, in the same transaction,
// events. One goroutine, one connection.
type shop struct {
	conn   *pgx.Conn
	outbox *outbox.Appender
	rate   float64
	events *ledger
}

func newShop(cfg config.Config, conn *pgx.Conn, rate float64, events *ledger) (*shop, error) {
	appender, err := outbox.NewAppender(cfg.Outbox)
	if err != nil {
		return nil, err
	}
	return &shop{conn: conn, outbox: appender, rate: rate, events: events}, nil
}

// topics are where the events will go: the router says it, as it will say it to the relay.
func (s *shop) topics(cfg router.Config) ([]string, error) {
	r, err := router.New(cfg, database)
	if err != nil {
		return nil, config.Problems{err}
	}
	var topics []string
	for _, k := range kinds {
		var rec router.Record
		ev := outbox.Event{AggregateType: []byte(k.aggregate), AggregateID: []byte("1"), EventType: []byte(k.event)}
		if err := r.Route(&ev, &rec); err != nil {
			return nil, err
		}
		if !slices.Contains(topics, rec.Topic) {
			topics = append(topics, rec.Topic)
		}
	}
	return topics, nil
}

// run writes orders at the wanted number of events per second until ctx ends. The first one has every
// kind of event and warms up: the relay looks up each topic before it first uses it.
func (s *shop) run(ctx context.Context) error {
	if err := s.order(context.WithoutCancel(ctx), len(kinds)); err != nil {
		return fmt.Errorf("place the first order: %w", err)
	}
	s.events.await(ctx, drainWait)
	s.events.startTiming()
	next := time.Now()
	for ctx.Err() == nil {
		n := 1 + rand.IntN(len(kinds))
		// The end of ctx must not leave a commit in doubt: an order is finished once it is begun.
		if err := s.order(context.WithoutCancel(ctx), n); err != nil {
			return fmt.Errorf("place an order: %w", err)
		}
		next = next.Add(time.Duration(float64(n) / s.rate * float64(time.Second)))
		select {
		case <-ctx.Done():
		case <-time.After(time.Until(next)):
		}
	}
	return nil
}

var errDeclined = errors.New("card declined")

// order writes one order and its first n events in one transaction.
func (s *shop) order(ctx context.Context, n int) error {
	ctx, cancel := context.WithTimeout(ctx, drainWait)
	defer cancel()
	var ids []outbox.EventID
	err := pgx.BeginFunc(ctx, s.conn, func(tx pgx.Tx) error {
		customer := customers[rand.IntN(len(customers))]
		cents := 100 + rand.IntN(20_000)
		var id int64
		err := tx.QueryRow(ctx, `insert into orders (customer, total) values ($1, $2::numeric / 100) returning id`, customer, cents).Scan(&id)
		if err != nil {
			return err
		}
		for i, k := range kinds[:n] {
			d := outbox.Draft{
				AggregateType: k.aggregate, EventType: k.event, AggregateID: strconv.FormatInt(id, 10),
				Payload: fmt.Sprintf(`{"order": %d, "customer": %q, "total": %d.%02d, "step": %d}`, id, customer, cents/100, cents%100, i+1),
			}
			if k.aggregate == "Payment" {
				// A payment has an id of its own, and is to keep the order of its order's events.
				d.AggregateID, d.PartitionKey = "pay-"+d.AggregateID, d.AggregateID
			}
			event, err := s.outbox.Append(ctx, tx, d)
			if err != nil {
				return err
			}
			ids = append(ids, event)
		}
		if id%declineOneIn == 0 {
			return errDeclined
		}
		return nil
	})
	switch {
	case errors.Is(err, errDeclined):
		s.events.rolledBack(ids)
		return nil
	case err != nil:
		return err
	}
	s.events.committed(ids, time.Now())
	return nil
}
