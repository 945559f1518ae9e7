package compare

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"walrelay/outbox"
)

// perWriter is how many transactions a second one connection is trusted with: a commit waits for the disk.
const perWriter = 100

// write commits transaction after transaction when its time has come.
func (m *measurement) write(ctx context.Context, began time.Time, length time.Duration) error {
	rate := float64(m.o.Rate) / float64(m.o.PerTx) // transactions a second
	total := int64(length.Seconds() * rate)
	var next atomic.Int64
	group, ctx := errgroup.WithContext(ctx)
	for range 1 + int(rate)/perWriter {
		group.Go(func() error {
			conn, err := pgx.Connect(ctx, m.o.Database)
			if err != nil {
				return fmt.Errorf("connect a writer: %w", err)
			}
			defer conn.Close(context.WithoutCancel(ctx))
			for {
				i := next.Add(1) - 1
				if i >= total {
					return nil
				}
				if err := until(ctx, began.Add(time.Duration(float64(i)/rate*float64(time.Second)))); err != nil {
					return err
				}
				if err := m.commit(ctx, conn, int(i)); err != nil {
					return err
				}
			}
		})
	}
	return group.Wait()
}

// commit is one transaction of one statement.
func (m *measurement) commit(ctx context.Context, conn *pgx.Conn, n int) error {
	ids := make([]outbox.EventID, m.o.PerTx)
	texts, keys := make([]string, len(ids)), make([]string, len(ids))
	for i := range ids {
		rand.Read(ids[i][:]) // never fails
		texts[i], keys[i] = ids[i].String(), fmt.Sprint("customer-", (n*len(ids)+i)%1000)
	}
	m.journal.expect(ids, time.Now())
	_, err := conn.Exec(ctx, `INSERT INTO `+m.table.SQL()+` (event_id, aggregate_type, aggregate_id, event_type, payload)
		SELECT id::uuid, 'order', key, 'OrderCreated', jsonb_build_object('pad', $3::text) FROM unnest($1::text[], $2::text[]) AS e (id, key)`,
		texts, keys, m.pad)
	at := time.Now()
	if err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	for _, id := range ids {
		m.journal.note(id, committed, at)
	}
	return nil
}

// padding makes a payload of about that many bytes.
func padding(payload int) string { return strings.Repeat("x", max(0, payload-len(`{"pad": ""}`))) }

// consume notes the arrival of every event until ctx ends.
func (m *measurement) consume(ctx context.Context) error {
	client, err := kgo.NewClient(append(m.o.Kafka, kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.ConsumeTopics(m.topic),
		kgo.MetadataMinAge(100*time.Millisecond), kgo.FetchMaxWait(100*time.Millisecond))...)
	if err != nil {
		return fmt.Errorf("make a consumer: %w", err)
	}
	defer client.Close()
	for ctx.Err() == nil {
		fetches := client.PollFetches(ctx)
		at := time.Now()
		for r := range fetches.RecordsAll() {
			for _, h := range r.Headers {
				if h.Key == "event_id" {
					if id, ok := parseID(h.Value); ok {
						m.journal.note(id, consumed, at)
					}
				}
			}
		}
	}
	return nil
}

// parseID reads a uuid as PostgreSQL prints it.
func parseID(text []byte) (id outbox.EventID, ok bool) {
	digits := bytes.ReplaceAll(text, []byte("-"), nil)
	if len(digits) != 2*len(id) {
		return id, false
	}
	_, err := hex.Decode(id[:], digits)
	return id, err == nil
}

// until sleeps to a moment.
func until(ctx context.Context, at time.Time) error {
	timer := time.NewTimer(time.Until(at))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
