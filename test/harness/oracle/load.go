package oracle

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/caarlos0/env/v11"
	"golang.org/x/sync/errgroup"

	"walrelay/migrations"
	"walrelay/outbox"
	"walrelay/test/harness"
)

// Migrate makes the native outbox table public.outbox and the publication, as walrelay migrate up
// does, and returns the table.
func Migrate(t testing.TB, db *harness.Database, publication string) outbox.Table {
	t.Helper()
	var config outbox.Config
	if err := env.ParseWithOptions(&config, env.Options{Environment: map[string]string{}}); err != nil { // the defaults
		t.Fatal(err)
	}
	table, err := outbox.ParseTable(config.Table)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := migrations.Up(t.Context(), db.Connect(t), migrations.Options{Table: table, Columns: config.Columns, Publication: publication}); err != nil {
		t.Fatal(err)
	}
	return table
}

// commitLimit bounds one transaction: a server that is stopped (SIGSTOP) does not answer at all.
const commitLimit = 30 * time.Second

// Load is a service under load: several writers, each with keys of its own.
type Load struct {
	Writers     int           // 0: 4
	Keys        int           // per writer; 0: 25
	Rows        int           // per transaction; 0: 1
	PayloadSize int           // bytes, at least about 40; 0: 300
	Pause       time.Duration // of a writer between two transactions
	Until       int           // rows of all writers together; 0: until the context ends
}

// Run writes until enough is written or the context ends, through restarts of the server, and
// returns what was committed, in commit order for each key. A transaction that failed is not tried
// again: the service would have told its caller.
func (l Load) Run(ctx context.Context, t testing.TB, db *harness.Database, table outbox.Table) []Committed {
	t.Helper()
	l.defaults()
	writers := make([]*Writer, l.Writers)
	for i := range writers {
		writers[i] = NewWriter(t, db, table)
	}
	group, ctx := errgroup.WithContext(ctx)
	for i, w := range writers {
		share := l.Until / l.Writers
		if i < l.Until%l.Writers {
			share++
		}
		group.Go(func() error { return l.write(ctx, w, i, share) })
	}
	if err := group.Wait(); err != nil {
		t.Errorf("load: %v", err)
	}
	var all []Committed
	for _, w := range writers {
		all = append(all, w.Committed()...)
	}
	return all
}

func (l *Load) defaults() {
	for field, value := range map[*int]int{&l.Writers: 4, &l.Keys: 25, &l.Rows: 1, &l.PayloadSize: 300} {
		if *field == 0 {
			*field = value
		}
	}
}

// write is one writer; share is its number of rows, 0 without a limit.
func (l *Load) write(ctx context.Context, w *Writer, number, share int) error {
	if l.Until > 0 && share == 0 {
		return nil
	}
	for n := 0; ctx.Err() == nil; {
		size := l.Rows
		if share > 0 {
			size = min(size, share-n)
		}
		events := make([]Event, size)
		for i := range events {
			events[i] = l.event(number, n+i)
		}
		switch err := commit(ctx, w, events); {
		case err == nil:
			if n += size; share > 0 && n >= share {
				return nil
			}
		case errors.Is(err, ErrUnknown):
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(l.Pause):
		}
	}
	return nil
}

// commit is not interrupted by the end of the load: a transaction ends one way or the other.
func commit(ctx context.Context, w *Writer, events []Event) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), commitLimit)
	defer cancel()
	return w.Commit(ctx, events...)
}

func (l *Load) event(writer, n int) Event {
	payload := fmt.Sprintf(`{"writer": %d, "n": %d, "pad": "`, writer, n)
	payload += strings.Repeat("x", max(0, l.PayloadSize-len(payload)-2)) + `"}`
	return Event{
		AggregateType: "Order", AggregateID: fmt.Sprintf("w%d-k%d", writer, n%l.Keys), EventType: "OrderPlaced", Payload: payload,
	}
}
