package replication

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"walrelay/checkpoint"
	"walrelay/internal/postgres"
)

// errTooMany is the end of a session that would have to hold more than its window until it knows that
// the carried position is this server's.
var errTooMany = errors.New("more rows are published and not settled on this server than the window holds: going on from what its slot has confirmed")

// remember notes a row of the last settle that was committed.
func (x *session) remember(pending []checkpoint.Pending, outcomes []checkpoint.Outcome) {
	for i, p := range pending {
		switch outcomes[i] {
		case checkpoint.Touched:
			x.lastSettled = p.Row
			return
		case checkpoint.Marked:
			x.lastSettled = p.Row
		}
	}
}

// resettle takes back what the carried position says of the table where the server may have lost it.
//
// A settle waits for this server's disk alone, so a standby that is promoted, or an image that is
// restored, may hold the transaction and not its settle. Its rows would be skipped as settled, and stay
// unmarked for ever. What a server keeps of its WAL is a prefix: when the last settle is there, all are.
func (x *session) resettle(ctx context.Context, c checkpoint.Carried) (checkpoint.Carried, error) {
	row := x.past.lastSettled
	if row == (checkpoint.Row{}) || c == c.Resettled() {
		return c, nil
	}
	marked := "false"
	if x.After == checkpoint.Mark {
		marked = pgx.Identifier{x.Columns.PublishedAt}.Sanitize() + " IS NOT NULL"
	}
	var settled bool
	ctx, done := postgres.Limited(ctx)
	defer done()
	err := x.sql.QueryRow(ctx, fmt.Sprintf("/* walrelay:settled */ SELECT %s FROM %s WHERE %s = $1 AND %s = $2", marked, x.Table.SQL(),
		pgx.Identifier{x.Columns.ID}.Sanitize(), pgx.Identifier{x.Columns.EventID}.Sanitize()), row.RowID, row.EventID.String()).Scan(&settled)
	switch {
	case errors.Is(err, pgx.ErrNoRows) || err == nil && settled: // deleted: by a settle, or by the application since
		return c, nil
	case err != nil:
		return c, fmt.Errorf("look for the row that was settled last: %w", err)
	}
	x.log.Warn("the server has lost what was settled last: settling again", "slot", x.cfg.Slot, "row", row.RowID, "event_id", row.EventID.String())
	return c.Resettled(), nil
}
