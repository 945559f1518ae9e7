package main

import (
	"context"
	"io"
	"log/slog"
	"os"
	"runtime/debug"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"walrelay/internal/config"
	"walrelay/internal/http"
	"walrelay/relay"
)

// outsideHeap is what a process takes that Go's memory limit does not count: above all the pages of
// the executable itself.
const outsideHeap = 16 << 20

func runCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "run",
		Short: "Relay until SIGTERM",
		Long: `Relays what is committed to the outbox table until SIGTERM or SIGINT. It then stops reading, waits up to
RELAY_SHUTDOWN_TIMEOUT for Kafka to acknowledge what is in flight, confirms it and leaves. A second
signal ends that wait; what was not confirmed is sent again after the next start. kill -9 at any
moment costs repeated events at most, and never a lost one.

While it runs it serves on HTTP_ADDR: / (status page), /metrics, /healthz (the process is well) and
/readyz (the stream is alive). "walrelay config" lists all variables.`,
		Example: `  DATABASE_URL=postgres://walrelay@db:5432/shop KAFKA_BROKERS=kafka:9092 walrelay run
  DATABASE_URL_FILE=/run/secrets/database_url KAFKA_BROKERS=kafka:9092 LOG_FORMAT=json walrelay run`,
		Args: known,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, warnings, err := config.Load(os.Environ())
			if err != nil {
				return err
			}
			log := newLogger(cfg.Log, cmd.ErrOrStderr())
			for _, w := range warnings {
				log.Warn(w)
			}
			limitMemory(cfg)
			p, err := newProcess(cfg, log, nil)
			if err != nil {
				return err
			}
			log.Info("starting", "version", buildVersion(), "database", cfg.Database.Redacted(), "table", cfg.Outbox.Table,
				"brokers", strings.Join(cfg.Kafka.Brokers, ","), "http", p.Address())
			ctx, stop := stopOnSignals(cmd.Context(), log, p.relay.Abort)
			defer stop()
			if err := p.Run(ctx); err != nil {
				return err
			}
			log.Info("stopped")
			return nil
		},
	}
}

func newLogger(cfg config.Log, w io.Writer) *slog.Logger {
	o := &slog.HandlerOptions{Level: cfg.Level}
	if cfg.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}

// limitMemory tells Go's runtime where to collect harder. An operator's own GOMEMLIMIT goes first.
func limitMemory(cfg config.Config) {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(int64(cfg.Relay.MemoryLimit) - outsideHeap)
	}
}

// process is a relay with its HTTP server.
type process struct {
	relay *relay.Relay
	http  *http.Server // nil: HTTP_ADDR=off
}

// newProcess makes both and takes the HTTP port; trace may be nil. An error of the relay's is one of its configuration.
func newProcess(cfg config.Config, log *slog.Logger, trace relay.Trace) (*process, error) {
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), buildInfo())
	r, err := relay.New(relay.Options{
		Database: cfg.Database.URL, Outbox: cfg.Outbox, Replication: cfg.Replication, Polling: cfg.Polling, Router: cfg.Router,
		Kafka: cfg.Kafka, Relay: cfg.Relay, Registry: reg, Log: log, Trace: trace,
	})
	if err != nil {
		return nil, config.Problems{err}
	}
	p := &process{relay: r}
	if cfg.HTTP.Addr != http.Off {
		p.http = http.New(cfg.HTTP, http.Options{Metrics: reg, Ready: r.Ready, Status: func() any { return r.Status() }})
		if err := p.http.Listen(); err != nil {
			return nil, err
		}
	}
	return p, nil
}

func buildInfo() prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "walrelay_build_info", Help: "1, with the version of this program as a label.",
		ConstLabels: prometheus.Labels{"version": buildVersion()},
	}, func() float64 { return 1 })
}

// Address is where the status page is, or "off".
func (p *process) Address() string {
	if p.http == nil {
		return http.Off
	}
	return p.http.Addr().String()
}

// Run returns when the relay has ended, and the HTTP server after it: metrics and readiness are there
// during the drain. A server that fails stops the relay in order.
func (p *process) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	serving, endServing := context.WithCancel(context.WithoutCancel(ctx))
	var group errgroup.Group
	if p.http != nil {
		group.Go(func() error {
			defer cancel()
			return p.http.Run(serving)
		})
	}
	group.Go(func() error {
		defer endServing()
		return p.relay.Run(ctx)
	})
	return group.Wait()
}

// Ready is nil while the relay does its work.
func (p *process) Ready() error { return p.relay.Ready() }
