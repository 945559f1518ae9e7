package main

import (
	"errors"
	"log/slog"
	"os"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"walrelay/internal/config"
	"walrelay/internal/demo"
)

func demoCommand() *cobra.Command {
	var rate float64
	var duration time.Duration
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "See it work on this machine: PostgreSQL, broker, a service, the relay, a consumer",
		Long: `Starts a throw-away PostgreSQL and an embedded Kafka broker, makes the outbox, lets a small order service
write, relays, and prints each event as a consumer sees it with its latency from commit to consumer. A
summary follows on Ctrl-C or after --for. Nothing of it stays.

PostgreSQL is taken from PATH or the usual folders; where there is none its binaries are fetched once
into a cache. Settings of the relay, the router and the log apply here too.`,
		Example: `  walrelay demo
  walrelay demo --rate 200 --for 30s
  ROUTER_TOPIC='{service}.{aggregate}' walrelay demo`,
		Args: known,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if rate <= 0 || rate > 10_000 {
				return &usageError{errors.New("--rate is events per second, more than 0 and at most 10000")}
			}
			stderr, stdout := cmd.ErrOrStderr(), cmd.OutOrStdout()
			ctx, stop := stopOnSignals(cmd.Context(), slog.New(slog.DiscardHandler), func() { os.Exit(exitFailure) })
			defer stop()
			return demo.Run(ctx, demo.Options{
				Rate: rate, For: duration, Out: stdout, Colour: demo.Terminal(stdout), Environ: os.Environ(),
				Log:   func(l config.Log) *slog.Logger { return newLogger(l, stderr) },
				Start: startDemo,
			})
		},
	}
	cmd.Flags().Float64Var(&rate, "rate", 5, "events per second that the service writes")
	cmd.Flags().DurationVar(&duration, "for", 0, "end after this time (default: at Ctrl-C)")
	return cmd
}

// startDemo makes the relay. Where nobody chose an address, a port that is in use is no reason not
// to show the rest.
func startDemo(cfg config.Config, log *slog.Logger) (demo.Relay, error) {
	limitMemory(cfg)
	p, err := newProcess(cfg, log, nil)
	if errors.Is(err, syscall.EADDRINUSE) && os.Getenv("HTTP_ADDR") == "" {
		cfg.HTTP.Addr = "127.0.0.1:0"
		p, err = newProcess(cfg, log, nil)
	}
	if err != nil {
		return nil, err
	}
	return p, nil
}
