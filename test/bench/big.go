package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// big drains one transaction of all rows. PostgreSQL spills it to its disk and sends it after its
// commit was decoded; walrelay must not hold it.
func (b *bench) big(ctx context.Context) error {
	d, err := b.database(ctx, "big")
	if err != nil {
		return err
	}
	all, err := d.bigTurns(ctx)
	if err := errors.Join(err, d.close()); err != nil {
		return err
	}
	b.result.Big = all
	var peak int64
	for _, f := range all {
		if relayed(f) {
			peak = max(peak, f.Peak)
			b.result.bar(fmt.Sprintf("one transaction of %d rows ÷ null reader, %s", f.Rows, f.What), f.Ratio, "", published)
		}
	}
	b.result.bar(fmt.Sprintf("peak RSS, one transaction of %d rows", b.rows), mib(peak), "MiB", atMost(64))
	return nil
}

func (d *database) bigTurns(ctx context.Context) ([]figures, error) {
	turns := []turn{{slot: "null_0"}, {"keep", "keep"}, {slot: "null_1"}, {"mark", "mark"}, {slot: "null_2"}}
	for _, t := range turns {
		if err := d.slots(ctx, t.slot); err != nil {
			return nil, err
		}
	}
	if err := d.fill(ctx, d.rows, d.rows); err != nil {
		return nil, err
	}
	var all []figures
	for _, t := range turns {
		var f figures
		var err error
		if t.after == "" {
			f, err = d.null(ctx, "TCP", t.slot, d.rows)
		} else {
			f, err = d.relayed(ctx, "TCP", t, d.rows)
		}
		if err != nil {
			return nil, err
		}
		d.sayFigures(f)
		all = append(all, f)
	}
	compare(all)
	return all, nil
}

const (
	largeRows  = 300
	largeBytes = 900_000 // of payload; Kafka's own limit is 1,000,012 with everything
)

// large drains rows of which a window holds only a few.
func (b *bench) large(ctx context.Context) error {
	d, err := b.database(ctx, "large")
	if err != nil {
		return err
	}
	f, err := d.largeTurn(ctx)
	if err := errors.Join(err, d.close()); err != nil {
		return err
	}
	b.sayFigures(f)
	b.result.Large = f
	b.result.bar("rows of 900 kB", f.Rate*largeBytes/1e6, "MB/s", published)
	b.result.bar("peak RSS, rows of 900 kB", mib(f.Peak), "MiB", atMost(64))
	return nil
}

func (d *database) largeTurn(ctx context.Context) (figures, error) {
	if err := d.slots(ctx, "mark"); err != nil {
		return figures{}, err
	}
	rows := min(largeRows, d.rows/10)
	began := time.Now()
	// Hexadecimal noise, which neither PostgreSQL nor Kafka can make much smaller.
	_, err := d.conn.Exec(ctx, fmt.Sprintf(`DO $$ BEGIN FOR i IN 1..%d LOOP
		INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload)
		SELECT 'order', 'customer-' || i, 'OrderCreated', jsonb_build_object('scan', string_agg(md5(random()::text), ''))
		FROM generate_series(1, %d);
		COMMIT;
	END LOOP; END $$`, rows, largeBytes/32))
	if err != nil {
		return figures{}, fmt.Errorf("fill the backlog: %w", err)
	}
	d.say("%d rows of %d bytes, in %.1f s", rows, largeBytes, time.Since(began).Seconds())
	return d.relayed(ctx, "TCP", turn{"mark", "mark"}, rows)
}
