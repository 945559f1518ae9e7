package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"walrelay/internal/usage"
)

const (
	perTransaction = 100
	keepRuns       = 3
	receiver       = "pg_recvlogical"

	// Bounds of one drain: enough for a machine that is ten times slower than the one we know.
	drainLimit = 10 * time.Minute
)

// figures are what one drain came to.
type figures struct {
	What      string  `json:"what"`
	Socket    string  `json:"socket"`
	Rows      int     `json:"rows"`
	Rate      float64 `json:"rows_per_second"`            // from the first record to the last
	Ratio     float64 `json:"of_null_reader,omitempty"`   // beside the null readers right before and after
	CPU       float64 `json:"cpu_us_per_row"`             // of the reading process
	Peak      int64   `json:"peak_rss_bytes,omitempty"`   // of the reading process
	FromStart float64 `json:"seconds_from_start"`         // from the start of the process to the last record
	First     float64 `json:"seconds_to_first,omitempty"` // from the start of the process to the first record
	Settled   float64 `json:"settled_per_second,omitempty"`
}

// drain lets null readers and relays take turns at one backlog, each with a slot of its own from
// before it. The machine's speed changes from minute to minute: a relay is set against the null
// readers right before and right after it.
func (b *bench) drain(ctx context.Context) error {
	var peak int64
	for _, socket := range sockets {
		d, err := b.database(ctx, "drain_"+name(socket))
		if err != nil {
			return err
		}
		all, err := d.drains(ctx, socket)
		if err := errors.Join(err, d.close()); err != nil {
			return err
		}
		b.result.Drains = append(b.result.Drains, all...)
		b.judgeDrains(socket, all)
		for _, f := range all {
			if relayed(f) {
				peak = max(peak, f.Peak)
			}
		}
	}
	b.result.bar("peak RSS, backlog", mib(peak), "MiB", atMost(64))
	return nil
}

// name is a socket as part of a name.
func name(socket string) string {
	if socket == "unix" {
		return "unix"
	}
	return "tcp"
}

// turn is one drain of the plan.
type turn struct{ slot, after string } // after is empty for the null reader

// plan is the order of the turns: mark needs rows that nobody marked, delete those that are still there.
func plan() []turn {
	var turns []turn
	null := func() { turns = append(turns, turn{slot: fmt.Sprintf("null_%d", len(turns))}) }
	null()
	for i := range keepRuns {
		turns = append(turns, turn{fmt.Sprintf("keep_%d", i), "keep"})
		null()
	}
	turns = append(turns, turn{"mark", "mark"})
	null()
	turns = append(turns, turn{"delete", "delete"})
	null()
	return turns
}

func (d *database) drains(ctx context.Context, socket string) ([]figures, error) {
	turns := plan()
	warm := turn{"warm", "keep"}
	slots := []string{"receive", warm.slot}
	for _, t := range turns {
		slots = append(slots, t.slot)
	}
	if err := d.slots(ctx, slots...); err != nil {
		return nil, err
	}
	if err := d.fill(ctx, d.rows, perTransaction); err != nil {
		return nil, err
	}
	end, err := d.position(ctx)
	if err != nil {
		return nil, err
	}
	d.say("%-4s  one drain that does not count: the broker's compiler must be done", socket)
	if _, err := d.relayed(ctx, socket, warm, d.rows); err != nil {
		return nil, err
	}
	received, err := d.receive(ctx, socket, "receive", end, d.rows)
	switch {
	case errors.Is(err, errNoReceiver):
		d.say("%v: left out", err)
	case err != nil:
		return nil, err
	default:
		d.sayFigures(received)
	}
	var all []figures
	for _, t := range turns {
		var f figures
		if t.after == "" {
			f, err = d.null(ctx, socket, t.slot, d.rows)
		} else {
			f, err = d.relayed(ctx, socket, t, d.rows)
		}
		if err != nil {
			return nil, err
		}
		d.sayFigures(f)
		all = append(all, f)
	}
	compare(all)
	if received.Rows > 0 {
		all = append(all, received)
	}
	return all, nil
}

// relayed drains the rows with walrelay.
func (d *database) relayed(ctx context.Context, socket string, t turn, rows int) (figures, error) {
	ctx, cancel := context.WithTimeout(ctx, drainLimit)
	defer cancel()
	r := launch{url: d.url(socket), slot: d.slot(t.slot), after: t.after}
	if d.profile != "" {
		r.self = []string{profileCommand, filepath.Join(d.profile, d.slot(t.slot)+".pprof")}
	}
	p, err := d.start(ctx, r)
	if err != nil {
		return figures{}, err
	}
	defer p.Kill()
	defer d.forget(p.topic)
	s, err := d.follow(ctx, p, int64(rows))
	if err != nil {
		return figures{}, err
	}
	f := figures{
		What: "walrelay, " + t.after, Socket: socket, Rows: rows, Rate: s.rate(s.last), CPU: s.cpu(), Peak: s.peak,
		FromStart: s.last.at.Sub(p.started).Seconds(), First: s.first.at.Sub(p.started).Seconds(),
	}
	if t.after != "keep" {
		if err := d.finish(ctx, p, s, t.after, &f); err != nil {
			return f, err
		}
	}
	if err := p.stop(); err != nil {
		return f, err
	}
	return f, d.whole(ctx, p.topic, int64(rows))
}

// finish waits until the rows are settled too: that is when mark and delete are done, in rate and CPU.
func (d *database) finish(ctx context.Context, p *process, s span, after string, f *figures) error {
	id, err := d.lastRow(ctx)
	if err != nil {
		return err
	}
	at, err := d.settled(ctx, id, after)
	if err != nil {
		return errors.Join(err, p.gone())
	}
	cpu, err := usage.CPU(p.Pid())
	if err != nil {
		return err
	}
	s.last.at, s.last.cpu = at, cpu
	f.Settled, f.CPU = s.rate(s.last), s.cpu()
	f.Peak, err = usage.Peak(p.Pid())
	return err
}

func relayed(f figures) bool { return f.What != "null reader" && f.What != receiver }

// compare sets each relay against the null readers beside it.
func compare(all []figures) {
	for i := range all {
		if relayed(all[i]) {
			all[i].Ratio = all[i].Rate / ((all[i-1].Rate + all[i+1].Rate) / 2)
		}
	}
}

func (b *bench) judgeDrains(socket string, all []figures) {
	ratio, cpu := atLeast(0.85), atMost(8)
	if socket == "unix" {
		ratio, cpu = atLeast(0.75), atMost(6)
	}
	b.result.bar("drain ÷ null reader, keep, "+socket, medianOf(all, "walrelay, keep", func(f figures) float64 { return f.Ratio }), "", ratio)
	b.result.bar("CPU per event, keep, "+socket, medianOf(all, "walrelay, keep", func(f figures) float64 { return f.CPU }), "µs", cpu)
	if received := medianOf(all, receiver, func(f figures) float64 { return f.Rate }); received > 0 {
		b.result.bar("drain ÷ pg_recvlogical, keep, "+socket, medianOf(all, "walrelay, keep", func(f figures) float64 { return f.Rate })/received, "", published)
	}
	for _, after := range []string{"mark", "delete"} {
		b.result.bar("drain ÷ null reader, "+after+", "+socket, medianOf(all, "walrelay, "+after, func(f figures) float64 { return f.Ratio }), "", published)
	}
}

func medianOf(all []figures, what string, value func(figures) float64) float64 {
	var values []float64
	for _, f := range all {
		if f.What == what {
			values = append(values, value(f))
		}
	}
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	if n := len(values); n%2 == 0 {
		return (values[n/2-1] + values[n/2]) / 2
	}
	return values[len(values)/2]
}

func (b *bench) sayFigures(f figures) {
	settled := ""
	if f.Settled > 0 {
		settled = fmt.Sprintf(", settled %.0f rows/s", f.Settled)
	}
	b.say("%-4s  %-17s %7.0f rows/s  %5.2f µs CPU/row  %4.0f MiB%s", f.Socket, f.What, f.Rate, f.CPU, mib(f.Peak), settled)
}

func mib(n int64) float64 { return float64(n) / (1 << 20) }
