package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"walrelay/internal/localdev/child"
	"walrelay/internal/usage"
)

// process is a running walrelay.
type process struct {
	*child.Process
	started time.Time
	topic   string
	log     string
}

// launch is what a relay of one measurement is told.
type launch struct {
	url   string
	slot  string
	after string   // keep, mark or delete
	mode  string   // polling; empty: wal
	env   []string // over the rest
	self  []string // instead of the built binary: this program with these arguments
}

// service names the topics of a run: one topic each, so that its end is the number of its records.
func (r launch) service() string { return strings.ReplaceAll(r.slot, "_", "-") }

// start starts walrelay with its topic ready.
func (b *bench) start(ctx context.Context, r launch) (*process, error) {
	p := &process{topic: r.service() + ".order.created", log: filepath.Join(b.folder.Path, r.slot+".log")}
	if err := b.topic(ctx, p.topic); err != nil {
		return nil, err
	}
	log, err := os.Create(p.log)
	if err != nil {
		return nil, fmt.Errorf("make a log: %w", err)
	}
	defer log.Close() // the child has its own copy
	cmd := exec.Command(b.binary, "run")
	if r.self != nil {
		cmd = exec.Command(b.self, r.self...)
	}
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = append(bare(os.Environ()),
		"DATABASE_URL="+r.url, "KAFKA_BROKERS="+b.broker.Addr(), "REPLICATION_SLOT="+r.slot, "REPLICATION_PUBLICATION="+publication,
		"ROUTER_SERVICE="+r.service(), "RELAY_AFTER_PUBLISH="+r.after, "HTTP_ADDR=127.0.0.1:0")
	if r.mode != "" {
		cmd.Env = append(cmd.Env, "RELAY_MODE="+r.mode)
	}
	cmd.Env = append(cmd.Env, r.env...)
	p.started = time.Now()
	if p.Process, err = child.Start(cmd, nil, syscall.SIGKILL); err != nil {
		return nil, err
	}
	return p, nil
}

// bare is the environment without settings of walrelay and of Go's runtime: the defaults are measured.
func bare(environ []string) []string {
	var kept []string
	for _, kv := range environ {
		name, _, _ := strings.Cut(kv, "=")
		if name == "PATH" || name == "HOME" || name == "TMPDIR" {
			kept = append(kept, kv)
		}
	}
	return kept
}

// stop ends the relay in order. The error holds the end of its log.
func (p *process) stop() error {
	if err := p.Stop(syscall.SIGTERM, 30*time.Second); err != nil {
		return err
	}
	return p.ended()
}

// ended is how a relay that is gone has ended.
func (p *process) ended() error {
	if err := p.Err(); err != nil {
		return fmt.Errorf("walrelay ended with %w:\n%s", err, p.tail())
	}
	return nil
}

func (p *process) tail() string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-4000):])
}

// sample is one look at a run.
type sample struct {
	at   time.Time
	rows int64
	cpu  time.Duration
}

// span is a run from its first records to its last.
type span struct {
	relay       *process
	first, last sample
	peak        int64 // bytes
}

const (
	lookPause = 50 * time.Millisecond // between two looks at the end of a topic
	lastPause = 5 * time.Millisecond  // when the end is near
)

// follow waits until the broker has n records of the relay. What it reports begins with the first look
// that saw a record, and counts from those that were there.
func (b *bench) follow(ctx context.Context, p *process, n int64) (span, error) {
	s := span{relay: p}
	for {
		rows, err := b.landed(ctx, p.topic)
		if err != nil {
			return s, err
		}
		now := time.Now()
		cpu, err := usage.CPU(p.Pid())
		if err != nil {
			return s, errors.Join(err, p.gone())
		}
		look := sample{now, rows, cpu}
		if rows > 0 && s.first.rows == 0 {
			s.first = look
		}
		if rows >= n {
			s.last = look
			s.peak, err = usage.Peak(p.Pid())
			return s, err
		}
		pause := lookPause
		if rate := s.rate(look); rate > 0 && float64(n-rows) < rate*2*lookPause.Seconds() {
			pause = lastPause
		}
		select {
		case <-p.Done():
			return s, p.gone()
		case <-ctx.Done():
			return s, fmt.Errorf("%d of %d records are on topic %s: %w\n%s", rows, n, p.topic, ctx.Err(), p.tail())
		case <-time.After(pause):
		}
	}
}

func (p *process) gone() error {
	if p.Running() {
		return nil
	}
	return errors.Join(errors.New("walrelay has ended before it was done"), p.ended())
}

// rate is rows per second from the first look to this one.
func (s span) rate(to sample) float64 {
	if s.first.rows == 0 || !to.at.After(s.first.at) {
		return 0
	}
	return float64(to.rows-s.first.rows) / to.at.Sub(s.first.at).Seconds()
}

// cpu is microseconds per row from the first look to the last.
func (s span) cpu() float64 {
	if s.last.rows == s.first.rows {
		return 0
	}
	return float64((s.last.cpu - s.first.cpu).Nanoseconds()) / 1e3 / float64(s.last.rows-s.first.rows)
}

// whole checks, after the relay has stopped, that the topic has each row once.
func (b *bench) whole(ctx context.Context, topic string, n int64) error {
	rows, err := b.landed(ctx, topic)
	if err == nil && rows != n {
		err = fmt.Errorf("topic %s has %d records of %d rows", topic, rows, n)
	}
	return err
}
