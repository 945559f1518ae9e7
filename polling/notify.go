package polling

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"walrelay/internal/postgres"
)

// probeLimit is how long a notification of our own may take to come back.
const probeLimit = 5 * time.Second

// notifier notes that a notification has come, on the goroutine that reads from the connection.
func notifier(heard *bool) func(*pgconn.PgConn, *pgconn.Notification) {
	return func(*pgconn.PgConn, *pgconn.Notification) { *heard = true }
}

// channel is where the table's trigger notifies: it knows its table by the OID.
func channel(table uint32) string { return "walrelay_" + strconv.FormatUint(uint64(table), 10) }

// listen begins to listen where the table's trigger notifies, and tries it once: a pooler, or a proxy
// between, may take LISTEN and lose what comes back.
func (x *session) listen(ctx context.Context) error {
	if x.cfg.Notify == Off {
		return x.deafen("")
	}
	on, err := x.triggered(ctx)
	if err != nil {
		return err
	}
	if !on {
		reason := fmt.Sprintf("table %s has no enabled trigger that notifies", x.Table)
		const remedy = "run walrelay migrate up --notify (where the trigger is disabled: ALTER TABLE … ENABLE TRIGGER walrelay_notify)"
		if x.cfg.Notify == On {
			return &postgres.FatalError{Reason: "POLLING_NOTIFY=on: " + reason, Remedy: remedy}
		}
		return x.deafen(reason + ": new rows wait for POLLING_INTERVAL; to be woken by each commit, " + remedy)
	}
	name := channel(x.table)
	limited, done := context.WithTimeout(ctx, probeLimit)
	defer done()
	_, err = x.conn.Exec(limited, fmt.Sprintf(`/* walrelay:listen */ LISTEN %s; SELECT pg_notify(%s, 'probe')`, pgx.Identifier{name}.Sanitize(), literal(name)))
	if err == nil && !*x.heard {
		err = x.conn.PgConn().WaitForNotification(limited)
	}
	if err == nil {
		return nil
	}
	if x.conn.IsClosed() || ctx.Err() != nil {
		return fmt.Errorf("listen: %w", err)
	}
	pg, answered := errors.AsType[*pgconn.PgError](err)
	why := "a notification of its own did not come back"
	if answered {
		why = pg.Message
	}
	if x.cfg.Notify == On {
		return &postgres.FatalError{
			Reason: "POLLING_NOTIFY=on: NOTIFY does not get through to this relay: " + why,
			Remedy: "let DATABASE_URL lead to PostgreSQL itself, or to a pooler in session mode", Err: err,
		}
	}
	return x.deafen("NOTIFY does not get through to this relay (" + why + "): new rows wait for POLLING_INTERVAL")
}

// deafen makes the session one that polls by the interval alone. The reason is said once.
func (x *session) deafen(reason string) error {
	x.deaf = true
	if reason != "" && !x.saidDeaf {
		x.saidDeaf = true
		x.log.Info(reason, "interval", x.cfg.Interval)
	}
	return nil
}

// triggered says whether an enabled trigger of the table calls the function of the migration.
func (x *session) triggered(ctx context.Context) (on bool, err error) {
	ctx, done := postgres.Limited(ctx)
	defer done()
	err = x.conn.QueryRow(ctx, `/* walrelay:trigger */
SELECT EXISTS (SELECT 1 FROM pg_trigger t WHERE t.tgrelid = $1 AND NOT t.tgisinternal AND t.tgname = 'walrelay_notify' AND t.tgenabled IN ('O', 'A'))`,
		x.table).Scan(&on)
	if err != nil {
		return false, fmt.Errorf("look for the trigger that notifies: %w", err)
	}
	return on, nil
}

// wait returns when a notification comes, when d is over, or when soft ends.
func (x *session) wait(soft context.Context, d time.Duration) error {
	if *x.heard {
		x.metrics.notifications.Inc()
		return nil
	}
	if x.deaf {
		_ = postgres.Sleep(soft, d) // the caller looks whether soft has ended
		return nil
	}
	ctx, done := context.WithTimeout(soft, d)
	defer done()
	err := x.conn.PgConn().WaitForNotification(ctx)
	switch {
	case err == nil:
		x.metrics.notifications.Inc()
		return nil
	case ctx.Err() != nil && !x.conn.IsClosed():
		return nil
	}
	return fmt.Errorf("wait for a notification: %w", err)
}
