package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/caarlos0/env/v11"
	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kgo"

	"walrelay/internal/compare"
	"walrelay/internal/config"
	"walrelay/internal/demo"
	"walrelay/internal/localdev"
)

type compareFlags struct {
	demo       bool
	modes      []string
	html, json string
	compare.Options
}

func compareCommand() *cobra.Command {
	var f compareFlags
	var names []string
	for _, m := range compare.All() {
		names = append(names, m.Name)
	}
	cmd := &cobra.Command{
		Use:   "compare",
		Short: "Measure on your servers what the write-ahead log gives over polling",
		Long: `Sends one load through each mode in turn (wal, polling woken by NOTIFY, polling) and reports how long an
event takes from commit to consumer and through each part of the way, and what each mode costs the
database and the machine.

It makes a table, a topic, and for wal a slot and a publication of its own, named walrelay_compare_…,
and drops them again, also on Ctrl-C. Your outbox is not touched. DATABASE_URL names a user who may
create tables; a mode that the servers or the user cannot have is left out and said so. Settings of
the relay (POLLING_INTERVAL, KAFKA_LINGER …) apply to the relay under test.

With --demo both servers are thrown away afterwards, and nothing needs to run.`,
		Example: `  walrelay compare --demo --for 20s --html report.html
  DATABASE_URL=postgres://postgres@db/shop KAFKA_BROKERS=kafka:9092 walrelay compare --rate 500
  walrelay compare --modes wal,polling --per-tx 10 --json -`,
		Args: known,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(names); err != nil {
				return &usageError{err}
			}
			ctx, stop := stopOnSignals(cmd.Context(), slog.New(slog.DiscardHandler), func() { os.Exit(exitFailure) })
			defer stop()
			return f.run(ctx, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	cmd.Flags().BoolVar(&f.demo, "demo", false, "use a throw-away PostgreSQL and an embedded broker")
	cmd.Flags().StringSliceVar(&f.modes, "modes", names, "modes to measure")
	cmd.Flags().IntVar(&f.Rate, "rate", 200, "events per second")
	cmd.Flags().DurationVar(&f.For, "for", 20*time.Second, "length of each measurement")
	cmd.Flags().IntVar(&f.Payload, "payload", 300, "bytes of a payload, about")
	cmd.Flags().IntVar(&f.PerTx, "per-tx", 1, "events in one transaction")
	cmd.Flags().StringVar(&f.html, "html", "", "write the report as a page with drawings to this `file`")
	cmd.Flags().StringVar(&f.json, "json", "", "write the report as JSON to this `file`, or to standard output for -")
	return cmd
}

func (f *compareFlags) check(names []string) error {
	for _, m := range f.modes {
		if !slices.Contains(names, m) {
			return fmt.Errorf("--modes: there is no mode %q: use %s", m, strings.Join(names, ", "))
		}
	}
	switch {
	case len(f.modes) == 0:
		return fmt.Errorf("--modes: name at least one of %s", strings.Join(names, ", "))
	case f.Rate < 1 || f.Rate > 20_000:
		return errors.New("--rate is events per second, 1 to 20000")
	case f.For < time.Second || f.For > time.Hour:
		return errors.New("--for is 1s to 1h")
	case f.Payload < 0 || f.Payload > 900_000:
		return errors.New("--payload is bytes, 0 to 900000")
	case f.PerTx < 1 || f.PerTx > 1000 || f.PerTx > f.Rate:
		return errors.New("--per-tx is events of a transaction, 1 to 1000 and not above --rate")
	}
	return nil
}

func (f *compareFlags) run(ctx context.Context, stdout, stderr io.Writer) (err error) {
	terminal := demo.Terminal(stderr)
	f.Say = func(format string, args ...any) {
		if terminal {
			fmt.Fprint(stderr, "\r\x1b[K")
		}
		fmt.Fprintf(stderr, format+"\n", args...)
	}
	f.Status = func(text string) {
		if terminal {
			fmt.Fprint(stderr, "\r\x1b[K", text)
		}
	}
	environ := os.Environ()
	if f.demo {
		servers, err := startServers(ctx, f.Say)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, servers.close()) }()
		f.Servers = servers.what
		environ = append(environ, "DATABASE_URL_FILE=", "DATABASE_URL="+servers.postgres.URL("postgres"), "KAFKA_BROKERS="+servers.broker.Addr())
	}
	// The relay's own settings are checked before anything is made; the mode is ours.
	cfg, _, err := config.Load(append(environ, "RELAY_MODE=wal", "RELAY_AFTER_PUBLISH=mark"))
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	f.Database, f.Brokers, f.Environ = cfg.Database.URL, strings.Join(cfg.Kafka.Brokers, ","), environ
	connect, err := cfg.Kafka.Connect(slog.New(slog.DiscardHandler))
	if err != nil {
		return config.Problems{err}
	}
	f.Kafka = append(connect, kgo.SeedBrokers(cfg.Kafka.Brokers...), kgo.ClientID(cfg.Kafka.ClientID))
	f.Relay, f.Modes = []string{self, tracedName}, f.modes
	report, err := compare.Run(ctx, f.Options)
	f.Status("")
	if err != nil {
		if ctx.Err() != nil {
			return errors.New("stopped: what was made is dropped again")
		}
		return err
	}
	return f.write(report, stdout)
}

// write puts the report where it was asked for.
func (f *compareFlags) write(r *compare.Report, stdout io.Writer) error {
	var errs []error
	if f.html != "" {
		errs = append(errs, toFile(f.html, r.HTML))
	}
	switch f.json {
	case "":
		errs = append(errs, r.Text(stdout))
	case "-":
		errs = append(errs, r.JSON(stdout))
	default:
		errs = append(errs, toFile(f.json, r.JSON), r.Text(stdout))
	}
	if f.html != "" {
		f.Say("report: %s", f.html)
	}
	return errors.Join(errs...)
}

func toFile(name string, write func(io.Writer) error) error {
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(write(file), file.Close())
}

// servers are those of --demo.
type servers struct {
	postgres *localdev.Server
	broker   *localdev.Broker
	what     string
}

func startServers(ctx context.Context, say func(string, ...any)) (*servers, error) {
	var cfg localdev.Config
	if err := env.Parse(&cfg); err != nil {
		return nil, err
	}
	binaries, err := localdev.Ensure(ctx, cfg, 0, func(p localdev.Progress) { say("%s", p) })
	if err != nil {
		return nil, err
	}
	s := &servers{what: fmt.Sprintf("PostgreSQL %d.%d and an embedded broker", binaries.Major, binaries.Minor)}
	if s.postgres, err = localdev.New(ctx, localdev.Options{Binaries: binaries}); err != nil {
		return nil, err
	}
	if s.broker, err = localdev.StartBroker(localdev.BrokerOptions{}); err != nil {
		return nil, errors.Join(err, s.postgres.Close())
	}
	say("%s, thrown away afterwards", s.what)
	return s, nil
}

func (s *servers) close() error {
	s.broker.Close()
	return s.postgres.Close()
}

const tracedName = "run-traced"

// tracedCommand is run for the relay under test: it writes to file descriptor 3 when each event came by.
func tracedCommand() *cobra.Command {
	return &cobra.Command{
		Use: tracedName, Hidden: true, Args: known,
		Short: "Relay as run does, for compare",
		Long:  "Relays as run does, and writes to file descriptor 3 when each event came by. compare starts it.",
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			cfg, _, err := config.Load(os.Environ())
			if err != nil {
				return err
			}
			pipe := os.NewFile(3, "trace")
			if pipe == nil {
				return errors.New(tracedName + " is run by walrelay compare")
			}
			trace, done, written := compare.NewTraceWriter(pipe), make(chan struct{}), make(chan error, 1)
			go func() { written <- trace.Run(done) }()
			defer func() {
				close(done)
				err = errors.Join(err, <-written, pipe.Close())
			}()
			log := newLogger(cfg.Log, cmd.ErrOrStderr())
			limitMemory(cfg)
			p, err := newProcess(cfg, log, trace)
			if err != nil {
				return err
			}
			ctx, stop := stopOnSignals(cmd.Context(), log, p.relay.Abort)
			defer stop()
			return p.Run(ctx)
		},
	}
}
