package outbox_test

import (
	"context"
	"database/sql"

	"github.com/jackc/pgx/v5"

	"walrelay/outbox"
)

// An order and its event are committed together.
func ExampleAppender_Append() {
	events, err := outbox.NewAppender(outbox.Config{}) // public.outbox
	if err != nil {
		panic(err)
	}
	placeOrder := func(ctx context.Context, db *pgx.Conn, orderID string, total int) error {
		return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "INSERT INTO orders (id, total) VALUES ($1, $2)", orderID, total); err != nil {
				return err
			}
			_, err := events.Append(ctx, tx, outbox.Draft{
				AggregateType: "Order",
				AggregateID:   orderID,
				EventType:     "OrderPlaced",
				Payload:       map[string]any{"id": orderID, "total": total},
				Headers:       map[string]string{"tenant": "eu-1"},
			})
			return err
		})
	}
	_ = placeOrder
}

// The same with database/sql; a nil payload is a tombstone.
func ExampleAppender_AppendSQL() {
	events, err := outbox.NewAppender(outbox.Config{Table: "shop.outbox"})
	if err != nil {
		panic(err)
	}
	forgetUser := func(ctx context.Context, db *sql.DB, userID string) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if _, err := tx.ExecContext(ctx, "DELETE FROM users WHERE id = $1", userID); err != nil {
			return err
		}
		if _, err := events.AppendSQL(ctx, tx, outbox.Draft{AggregateType: "User", AggregateID: userID, EventType: "UserForgotten"}); err != nil {
			return err
		}
		return tx.Commit()
	}
	_ = forgetUser
}
