package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"syscall"

	"github.com/prometheus/client_golang/prometheus"

	"walrelay/internal/config"
	"walrelay/relay"
)

// profileCommand is the first argument that makes this program a relay that writes a CPU profile. The
// built binary has no such thing.
const profileCommand = "profiled-relay"

// memoryLimit is what walrelay run sets for the default of RELAY_MEMORY_LIMIT.
const memoryLimit = 48 << 20

// profiledRelay is walrelay run with a CPU profile, and one of the heap at its end beside it.
func profiledRelay(args []string) (err error) {
	if len(args) != 1 {
		return errors.New("name the file of the profile")
	}
	cfg, _, err := config.Load(os.Environ())
	if err != nil {
		return err
	}
	debug.SetMemoryLimit(memoryLimit)
	r, err := relayOf(cfg)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(args[0]), 0o755); err != nil {
		return err
	}
	file, err := os.Create(args[0])
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if err := pprof.StartCPUProfile(file); err != nil {
		return fmt.Errorf("start the profile: %w", err)
	}
	defer pprof.StopCPUProfile()
	err = r.Run(ctx)
	return errors.Join(err, writeHeap(args[0]+".heap"))
}

func relayOf(cfg config.Config) (*relay.Relay, error) {
	return relay.New(relay.Options{
		Database: cfg.Database.URL, Outbox: cfg.Outbox, Replication: cfg.Replication, Router: cfg.Router, Kafka: cfg.Kafka, Relay: cfg.Relay,
		Registry: prometheus.NewRegistry(), Log: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
}

// writeHeap writes what was ever allocated and what is left.
func writeHeap(path string) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	runtime.GC()
	return errors.Join(pprof.Lookup("heap").WriteTo(file, 0), file.Close())
}
