package relay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"

	"walrelay/internal/postgres"
)

const (
	retentionInterval = time.Minute // between two rounds
	retentionBatch    = 1000        // rows that one statement looks at
	retentionRest     = 4           // times what a statement took, before the next: a fifth of a core's time at most
	retentionPause    = 20 * time.Millisecond
)

// retention deletes rows that were published long ago. It does so while this relay leads, on a connection
// of its own, in small statements with pauses between them; an error is said once and tried again.
type retention struct {
	keep    time.Duration
	outbox  postgres.Outbox
	leads   func() bool
	log     *slog.Logger
	said    string // the last error
	deleted prometheus.Counter
	errors  prometheus.Counter
	last    prometheus.Gauge
}

func newRetention(o Options, leads func() bool) (*retention, error) {
	r := &retention{keep: o.Relay.Retention, leads: leads, log: o.Log,
		deleted: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "walrelay_retention_rows_deleted_total", Help: "Published rows that were deleted because they were older than OUTBOX_RETENTION."}),
		errors: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "walrelay_retention_errors_total", Help: "Rounds of the retention that ended with an error."}),
		last: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "walrelay_retention_last_success_timestamp_seconds", Help: "When a round of the retention last came to its end."}),
	}
	var err error
	if r.outbox, err = postgres.NewOutbox(o.Database, o.Outbox, o.Relay.AfterPublish, o.Dial); err != nil {
		return nil, err
	}
	o.Registry.MustRegister(r.deleted, r.errors, r.last)
	return r, nil
}

// run goes round until ctx ends.
func (r *retention) run(ctx context.Context) {
	for ctx.Err() == nil {
		pause := time.Second // until it leads
		if r.leads() {
			r.note(ctx, r.round(ctx))
			pause = retentionInterval
		}
		_ = postgres.Sleep(ctx, pause) // ctx is looked at above
	}
}

func (r *retention) note(ctx context.Context, err error) {
	switch {
	case ctx.Err() != nil:
	case err == nil:
		if r.said != "" {
			r.log.Info("old rows are deleted again")
		}
		r.said = ""
		r.last.SetToCurrentTime()
	default:
		r.errors.Inc()
		if text := err.Error(); text != r.said {
			r.said = text
			r.log.Warn("old rows could not be deleted", "error", err)
		}
	}
}

// retentionSQL looks at rows in the order of their ids, which is about that of their age, and deletes
// those that were published before the time. It passes over what somebody has locked. $1 is the id to
// begin behind, $2 how many rows, $3 how old in seconds.
const retentionSQL = `/* walrelay:retention */
WITH walked AS MATERIALIZED (
	SELECT {id} AS id, {published_at} < statement_timestamp() - make_interval(secs => $3) AS old, {published_at} IS NULL AS open
	FROM {table} WHERE {id} > $1 ORDER BY {id} LIMIT $2
), old AS MATERIALIZED (
	SELECT o.{id} AS id FROM {table} o WHERE o.{id} = ANY (ARRAY(SELECT id FROM walked WHERE old))
	AND o.{published_at} < statement_timestamp() - make_interval(secs => $3) FOR UPDATE SKIP LOCKED
), gone AS (
	DELETE FROM {table} o WHERE o.{id} = ANY (ARRAY(SELECT id FROM old)) AND o.{published_at} < statement_timestamp() - make_interval(secs => $3) RETURNING 1
)
SELECT count(*), coalesce(max(id), 0), coalesce(bool_or(NOT old AND NOT open), false), (SELECT count(*) FROM gone) FROM walked`

// round walks from the lowest id up to the first rows that are to be kept.
func (r *retention) round(ctx context.Context) error {
	conn, err := postgres.Connect(ctx, r.outbox.Database, 0)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	ident := func(name string) string { return pgx.Identifier{name}.Sanitize() }
	sql := strings.NewReplacer("{table}", r.outbox.Table.SQL(), "{id}", ident(r.outbox.Columns.ID), "{published_at}", ident(r.outbox.Columns.PublishedAt)).Replace(retentionSQL)
	total := int64(0)
	for cursor, more := int64(0), true; more && r.leads(); {
		began := time.Now()
		seen, young, gone, err := r.batch(ctx, conn, sql, &cursor)
		switch {
		case postgres.Refused(err):
			return &postgres.FatalError{Reason: fmt.Sprintf("role %q may not DELETE from table %s", r.outbox.Database.User, r.outbox.Table),
				Remedy: fmt.Sprintf("GRANT DELETE ON %s TO %s", r.outbox.Table.SQL(), ident(r.outbox.Database.User)), Err: err}
		case err != nil:
			return fmt.Errorf("delete old rows of %s: %w", r.outbox.Table, err)
		}
		total += gone
		r.deleted.Add(float64(gone))
		more = seen == retentionBatch && (gone > 0 || !young)
		if more {
			if err := postgres.Sleep(ctx, max(retentionPause, retentionRest*time.Since(began))); err != nil {
				return err
			}
		}
	}
	if total > 0 {
		r.log.Debug("deleted old rows", "rows", total, "older_than", r.keep)
	}
	return nil
}

func (r *retention) batch(ctx context.Context, conn *pgx.Conn, sql string, cursor *int64) (seen int, young bool, gone int64, err error) {
	ctx, done := postgres.Limited(ctx)
	defer done()
	var last int64
	if err = conn.QueryRow(ctx, sql, *cursor, retentionBatch, r.keep.Seconds()).Scan(&seen, &last, &young, &gone); err != nil {
		return 0, false, 0, err
	}
	*cursor = last
	return seen, young, gone, nil
}

var errNoRetention = errors.New("OUTBOX_RETENTION deletes rows that are marked as published: it goes with RELAY_AFTER_PUBLISH=mark alone (delete leaves none, keep marks none)")
