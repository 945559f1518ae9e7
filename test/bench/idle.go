package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"time"

	"walrelay/internal/usage"
	"walrelay/migrations"
)

// idle is what a relay without work asks of its database.
type idle struct {
	Seconds    float64 `json:"seconds"`
	Statements int     `json:"statements"`
	CPU        float64 `json:"cpu_ms_per_second"` // of the relay
	Peak       int64   `json:"peak_rss_bytes"`
}

const idleRole = "bench_idle"

// idle counts the statements of a relay in the server's log, which has each.
func (b *bench) idle(ctx context.Context) error {
	d, err := b.database(ctx, "idle")
	if err != nil {
		return err
	}
	if err := d.slots(ctx, "idle"); err != nil {
		return errors.Join(err, d.close())
	}
	i, err := d.idleTurn(ctx, launch{slot: d.slot("idle"), after: "mark"})
	if err := errors.Join(err, d.close(), execute(ctx, b.pg.SocketURL("postgres"), "DROP ROLE IF EXISTS "+idleRole)); err != nil {
		return err
	}
	b.say("%d statements in %.0f s, %.1f ms CPU per second, %.0f MiB", i.Statements, i.Seconds, i.CPU, mib(i.Peak))
	b.result.Idle = i
	b.result.bar("SQL statements of an idle relay per 5 s", 5*float64(i.Statements)/i.Seconds, "", atMost(1))
	b.result.bar("CPU of an idle relay", i.CPU, "ms/s", published)
	return nil
}

func (d *database) idleTurn(ctx context.Context, r launch) (i idle, err error) {
	options, err := defaultOptions()
	if err != nil {
		return i, err
	}
	role, err := migrations.Role(options, idleRole, "mark")
	if err != nil {
		return i, err
	}
	for _, sql := range []string{role, "ALTER ROLE " + idleRole + " SET log_statement = 'all'"} {
		if _, err := d.conn.Exec(ctx, sql); err != nil {
			return i, fmt.Errorf("make a role for the relay: %w", err)
		}
	}
	where, err := url.Parse(d.url("TCP"))
	if err != nil {
		return i, err
	}
	where.User = url.User(idleRole)
	r.url = where.String()
	p, err := d.start(ctx, r)
	if err != nil {
		return i, err
	}
	defer p.Kill()
	if err := d.awaitRelay(ctx, r, p); err != nil {
		return i, err
	}
	// Not idle yet: the first look at the server belongs to the start.
	if err := sleepUntil(ctx, time.Now().Add(warmUp)); err != nil {
		return i, err
	}
	before, err := d.statements()
	if err != nil {
		return i, err
	}
	cpu, _ := usage.CPU(p.Pid())
	began := time.Now()
	if err := sleepUntil(ctx, began.Add(2*d.last)); err != nil {
		return i, err
	}
	after, err := d.statements()
	if err != nil {
		return i, err
	}
	used, _ := usage.CPU(p.Pid())
	i.Seconds, i.Statements = time.Since(began).Seconds(), after-before
	i.CPU = float64((used - cpu).Microseconds()) / 1000 / i.Seconds
	if i.Peak, err = usage.Peak(p.Pid()); err != nil {
		return i, errors.Join(err, p.gone())
	}
	if after == 0 {
		return i, fmt.Errorf("the server's log %s has no statement of role %s: they cannot be counted", d.pg.LogPath(), idleRole)
	}
	return i, p.stop()
}

// statements is the number of statements of the relay's role in the log so far: simple queries are
// logged as statement, prepared ones as execute.
func (d *database) statements() (int, error) {
	log, err := os.ReadFile(d.pg.LogPath())
	if err != nil {
		return 0, fmt.Errorf("read the server's log: %w", err)
	}
	n := 0
	for line := range bytes.Lines(log) {
		if bytes.Contains(line, []byte(idleRole+"@")) && (bytes.Contains(line, []byte("LOG:  statement: ")) || bytes.Contains(line, []byte("LOG:  execute "))) {
			n++
		}
	}
	return n, nil
}
