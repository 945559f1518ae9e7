package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"walrelay/outbox"
)

// GivenUp asks the table whether an operator has marked the row of an event that cannot be published.
// Where not, remedy is the statement that does it; it is empty where there is no such row, or no way
// to mark it.
func (o *Outbox) GivenUp(ctx context.Context, row int64, event outbox.EventID) (given bool, remedy string, err error) {
	if event == (outbox.EventID{}) {
		return false, "", nil
	}
	conn, err := Connect(ctx, o.Database, 0)
	if err != nil {
		return false, "", err
	}
	defer conn.Close(ctx)
	mark, id := pgx.Identifier{o.Columns.PublishedAt}.Sanitize(), pgx.Identifier{o.Columns.ID}.Sanitize()
	ctx, done := Limited(ctx)
	defer done()
	var marked bool
	err = conn.QueryRow(ctx, fmt.Sprintf("/* walrelay:given-up */ SELECT %s IS NOT NULL FROM %s WHERE %s = $1 AND %s = $2",
		mark, o.Table.SQL(), id, pgx.Identifier{o.Columns.EventID}.Sanitize()), row, event.String()).Scan(&marked)
	switch {
	case errors.Is(err, pgx.ErrNoRows), unanswerable(err):
		return false, "", nil
	case err != nil:
		return false, "", fmt.Errorf("look for the row of event %s: %w", event, err)
	case !marked:
		return false, fmt.Sprintf("UPDATE %s SET %s = now() WHERE %s = %d", o.Table.SQL(), mark, id, row), nil
	}
	return true, "", nil
}

// unanswerable is a table without the column, or one that this role may not read; both serve
// RELAY_AFTER_PUBLISH=keep.
func unanswerable(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (pg.Code == "42703" || pg.Code == "42501")
}
