package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/caarlos0/env/v11"
	"github.com/prometheus/client_golang/prometheus"

	"walrelay/checkpoint"
	"walrelay/internal/usage"
	"walrelay/replication"
)

// nullCommand is the first argument that makes this program the null reader, a process of its own like
// the relay.
const nullCommand = "null-reader"

// nullRead is what the null reader prints.
type nullRead struct {
	Rate      float64 // rows per second, first to last
	CPU       float64 // microseconds per row
	FromStart float64 // seconds from the start of the process to the last row
	Peak      int64   // bytes
}

// nullReader reads a slot and throws the rows away.
func nullReader(args []string, out io.Writer) error {
	f := flag.NewFlagSet(nullCommand, flag.ContinueOnError)
	url := f.String("url", "", "")
	slot := f.String("slot", "", "")
	rows := f.Int("rows", 0, "")
	if err := f.Parse(args); err != nil {
		return err
	}
	o := replication.Options{
		Database: *url, AfterPublish: checkpoint.Keep, RowLimit: 4 << 20,
		Log: slog.New(slog.NewTextHandler(os.Stderr, nil)), Registry: prometheus.NewRegistry(),
	}
	for _, cfg := range []any{&o.Config, &o.Outbox} {
		if err := env.ParseWithOptions(cfg, env.Options{Environment: map[string]string{}}); err != nil {
			return err
		}
	}
	o.Config.Slot, o.Config.Publication = *slot, publication
	began := time.Now()
	before, err := usage.CPU(os.Getpid())
	if err != nil {
		return err
	}
	seen, err := replication.Discard(context.Background(), o, *rows)
	if err != nil {
		return err
	}
	after, err := usage.CPU(os.Getpid())
	if err != nil {
		return err
	}
	peak, err := usage.Peak(os.Getpid())
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(nullRead{
		Rate: float64(seen.Inserts-1) / seen.Last.Sub(seen.First).Seconds(), CPU: float64((after - before).Microseconds()) / float64(seen.Inserts),
		FromStart: seen.Last.Sub(began).Seconds(), Peak: peak,
	})
}

// null runs the null reader.
func (d *database) null(ctx context.Context, socket, slot string, rows int) (figures, error) {
	cmd := exec.CommandContext(ctx, d.self, nullCommand, "--url", d.url(socket), "--slot", d.slot(slot), "--rows", fmt.Sprint(rows))
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return figures{}, fmt.Errorf("null reader: %w", err)
	}
	var r nullRead
	if err := json.Unmarshal(out, &r); err != nil {
		return figures{}, fmt.Errorf("read what the null reader says: %w", err)
	}
	return figures{What: "null reader", Socket: socket, Rows: rows, Rate: r.Rate, CPU: r.CPU, FromStart: r.FromStart, Peak: r.Peak}, nil
}

// receive runs pg_recvlogical up to the end position. Its rate is that of the whole process: it does
// not say when the first row came.
func (d *database) receive(ctx context.Context, socket, slot, end string, rows int) (figures, error) {
	program := filepath.Join(d.pg.Binaries().Dir, "pg_recvlogical")
	if _, err := os.Stat(program); err != nil {
		if program, err = exec.LookPath("pg_recvlogical"); err != nil {
			return figures{}, errNoReceiver
		}
	}
	cmd := exec.CommandContext(ctx, program, "--dbname="+d.url(socket), "--slot="+d.slot(slot), "--start", "--no-loop", "--endpos="+end,
		"--option=proto_version=1", "--option=publication_names="+publication, "--fsync-interval=0", "--file=/dev/null")
	began := time.Now()
	if out, err := cmd.CombinedOutput(); err != nil {
		return figures{}, fmt.Errorf("pg_recvlogical: %w\n%s", err, out)
	}
	took := time.Since(began).Seconds()
	cpu := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	return figures{
		What: receiver, Socket: socket, Rows: rows, Rate: float64(rows) / took,
		CPU: float64(cpu.Microseconds()) / float64(rows), FromStart: took,
	}, nil
}

// errNoReceiver: its package is not installed.
var errNoReceiver = errors.New("pg_recvlogical is not installed")

// position is where the server writes now.
func (d *database) position(ctx context.Context) (lsn string, err error) {
	if err := d.conn.QueryRow(ctx, "SELECT pg_current_wal_lsn()::text").Scan(&lsn); err != nil {
		return "", fmt.Errorf("ask for the position: %w", err)
	}
	return lsn, nil
}
