// Package demo is walrelay on one machine with nothing prepared: a throw-away PostgreSQL, an embedded
// broker, a small order service that writes, the relay, and a consumer that shows what arrives.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/caarlos0/env/v11"
	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"walrelay/internal/config"
	"walrelay/internal/localdev"
	"walrelay/migrations"
	"walrelay/outbox"
	relaying "walrelay/relay"
)

// database is the name of the demo's database, and therefore the {service} of its topics.
const database = "shop"

const (
	readyWait  = 30 * time.Second       // for the first stream, on a slow machine
	drainWait  = 10 * time.Second       // for the last events to arrive
	settleWait = 3 * time.Second        // for the slot to catch up: three status intervals
	pollPause  = 20 * time.Millisecond  // between two looks at what announces nothing by itself
	closeWait  = 5 * time.Second        // for a connection to say goodbye
	lagPause   = 200 * time.Millisecond // between two looks at the slot
)

// Relay is the relay under demonstration. Run returns when it has ended; Ready and Address may be
// called from other goroutines meanwhile.
type Relay interface {
	Run(ctx context.Context) error
	Ready() error
	Address() string // of the status page, or "off"
}

// Options are what the command line says.
type Options struct {
	Rate    float64       // events per second
	For     time.Duration // 0: until ctx ends
	Out     io.Writer
	Colour  bool
	Log     func(config.Log) *slog.Logger
	Start   func(config.Config, *slog.Logger) (Relay, error) // makes the relay, does not run it
	Environ []string
}

// Run shows the demo until ctx ends or Options.For is over. It stops and removes whatever it started.
// The error says also that an event was lost or came twice: nothing here may cause that.
func Run(ctx context.Context, o Options) error {
	// What is wrong with the environment is said before anything is started.
	if _, err := configure(o.Environ, "postgres://localhost/"+database, "localhost:9092"); err != nil {
		return err
	}
	err := run(ctx, o)
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil // Ctrl-C while it started
	}
	return err
}

func run(ctx context.Context, o Options) (err error) {
	v := newView(o.Out, o.Colour)
	v.title()
	server, err := startPostgres(ctx, v)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	broker, err := localdev.StartBroker(localdev.BrokerOptions{})
	if err != nil {
		return err
	}
	defer broker.Close()
	v.step("embedded Kafka broker on " + broker.Addr())

	cfg, err := configure(o.Environ, server.URL(database), broker.Addr())
	if err != nil {
		return err
	}
	conn, err := prepare(ctx, cfg, server.URL("postgres"))
	if err != nil {
		return err
	}
	defer func() {
		bound, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeWait)
		defer cancel()
		err = errors.Join(err, conn.Close(bound))
	}()
	v.step("outbox table " + cfg.Outbox.Table + " and publication " + cfg.Replication.Publication)
	return show(ctx, o, cfg, conn, v)
}

func startPostgres(ctx context.Context, v *view) (*localdev.Server, error) {
	var cfg localdev.Config
	if err := env.Parse(&cfg); err != nil {
		return nil, err
	}
	binaries, err := localdev.Ensure(ctx, cfg, 0, func(p localdev.Progress) { v.progress(p.String()) })
	if err != nil {
		return nil, err
	}
	server, err := localdev.New(ctx, localdev.Options{Binaries: binaries})
	if err != nil {
		return nil, err
	}
	v.step(fmt.Sprintf("%s on 127.0.0.1:%d", binaries, server.Port()))
	return server, nil
}

// configure takes over what the environment says of the relay, topics and log, so that it can be
// tried out here; the servers are the demo's own.
func configure(environ []string, databaseURL, brokers string) (config.Config, error) {
	vars := env.ToMap(environ)
	delete(vars, "DATABASE_URL_FILE")
	vars["DATABASE_URL"], vars["KAFKA_BROKERS"] = databaseURL, brokers
	if vars["LOG_LEVEL"] == "" {
		vars["LOG_LEVEL"] = "warn" // the table is what is to be seen
	}
	var list []string
	for name, value := range vars {
		list = append(list, name+"="+value)
	}
	cfg, _, err := config.Load(list)
	return cfg, err
}

// prepare makes the database with the outbox and the service's own table, and returns a connection
// to it.
func prepare(ctx context.Context, cfg config.Config, adminURL string) (*pgx.Conn, error) {
	admin, err := pgx.Connect(ctx, adminURL)
	if err != nil {
		return nil, fmt.Errorf("connect to the demo's PostgreSQL: %w", err)
	}
	_, err = admin.Exec(ctx, "create database "+database)
	if err := errors.Join(err, admin.Close(ctx)); err != nil {
		return nil, fmt.Errorf("create the demo's database: %w", err)
	}
	conn, err := pgx.Connect(ctx, cfg.Database.URL)
	if err != nil {
		return nil, fmt.Errorf("connect to the demo's database: %w", err)
	}
	if err := makeTables(ctx, conn, cfg); err != nil {
		return nil, errors.Join(err, conn.Close(context.WithoutCancel(ctx)))
	}
	return conn, nil
}

func makeTables(ctx context.Context, conn *pgx.Conn, cfg config.Config) error {
	table, err := outbox.ParseTable(cfg.Outbox.Table)
	if err != nil {
		return err
	}
	if _, err := conn.Exec(ctx, "create schema if not exists "+pgx.Identifier{table.Schema}.Sanitize()); err != nil {
		return fmt.Errorf("create the schema of the outbox: %w", err)
	}
	o := migrations.Options{Table: table, Columns: cfg.Outbox.Columns, Publication: cfg.Replication.Publication,
		Notify: cfg.Relay.Mode == relaying.Polling}
	if _, err := migrations.Up(ctx, conn, o); err != nil {
		return err
	}
	_, err = conn.Exec(ctx, ordersTable)
	if err != nil {
		return fmt.Errorf("create the table of orders: %w", err)
	}
	return nil
}

// show runs relay, consumer and service side by side, stops the service first and the relay last,
// and prints the summary.
func show(ctx context.Context, o Options, cfg config.Config, conn *pgx.Conn, v *view) error {
	events := newLedger(v.event)
	shop, err := newShop(cfg, conn, o.Rate, events)
	if err != nil {
		return err
	}
	topics, err := shop.topics(cfg.Router)
	if err != nil {
		return err
	}
	watcher, err := newConsumer(ctx, cfg.Kafka.Brokers, topics, events)
	if err != nil {
		return err
	}
	relay, err := o.Start(cfg, o.Log(cfg.Log))
	if err != nil {
		watcher.close()
		return err
	}

	// A failure of one ends all; the end of ctx is for the service alone, the others see its last events.
	group, failed := errgroup.WithContext(context.WithoutCancel(ctx))
	running, stop := context.WithCancel(failed)
	defer stop()
	group.Go(func() error { return relay.Run(running) })
	group.Go(func() error { return watcher.run(running) })
	group.Go(func() error {
		defer stop()
		if err := awaitReady(ctx, running, relay); err != nil {
			return err
		}
		v.ready(relay.Address(), o.Rate, o.For)
		writing, cancel := until(ctx, running, o.For)
		defer cancel()
		if err := shop.run(writing); err != nil {
			return err
		}
		events.await(running, drainWait)
		lag := "none: RELAY_MODE=polling has no slot"
		if cfg.Relay.Mode == relaying.WAL {
			bytes, err := slotLag(running, conn, cfg.Replication.Slot)
			if err != nil {
				return err
			}
			lag = size(bytes)
		}
		v.summary(events.totals(), lag)
		return nil
	})
	if err := group.Wait(); err != nil {
		return err
	}
	if t := events.totals(); t.lost+t.repeated+t.phantoms > 0 {
		return fmt.Errorf("%d events were lost, %d came more than once, %d were rolled back and came all the same", t.lost, t.repeated, t.phantoms)
	}
	return nil
}

// until ends with either context, and after d where d is set.
func until(ctx, other context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(other, cancel)
	end := func() { stop(); cancel() }
	if d <= 0 {
		return ctx, end
	}
	ctx, cancelTimer := context.WithTimeout(ctx, d)
	return ctx, func() { cancelTimer(); end() }
}

func awaitReady(ctx, running context.Context, relay Relay) error {
	ctx, cancel := until(ctx, running, readyWait)
	defer cancel()
	for {
		err := relay.Ready()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			if running.Err() != nil || !errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return nil // somebody else has the reason, or Ctrl-C
			}
			return fmt.Errorf("the relay is not ready after %s: %w", readyWait, err)
		case <-time.After(pollPause):
		}
	}
}

// slotLag is how many bytes of WAL the slot has not confirmed, once it has had the time to confirm
// what is settled.
func slotLag(ctx context.Context, conn *pgx.Conn, slot string) (int64, error) {
	var goal string
	if err := conn.QueryRow(ctx, `select pg_current_wal_lsn()::text`).Scan(&goal); err != nil {
		return 0, fmt.Errorf("read the WAL position: %w", err)
	}
	for end := time.Now().Add(settleWait); ; {
		var missing, lag int64
		err := conn.QueryRow(ctx, `select greatest(0, $2::pg_lsn - confirmed_flush_lsn)::bigint, (pg_current_wal_lsn() - confirmed_flush_lsn)::bigint
			from pg_replication_slots where slot_name = $1`, slot, goal).Scan(&missing, &lag)
		if err != nil {
			return 0, fmt.Errorf("read the lag of slot %s: %w", slot, err)
		}
		if missing == 0 || time.Now().After(end) {
			return lag, nil
		}
		select {
		case <-ctx.Done():
			return lag, nil
		case <-time.After(lagPause):
		}
	}
}

// Terminal says whether colours make sense on w.
func Terminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok || os.Getenv("NO_COLOR") != "" || strings.EqualFold(os.Getenv("TERM"), "dumb") {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
