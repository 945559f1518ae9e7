package demo

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// view prints. Its methods may be called from several goroutines.
type view struct {
	out    io.Writer
	colour bool

	mu struct {
		sync.Mutex
		last time.Time // of the last step
	}
}

func newView(out io.Writer, colour bool) *view {
	v := &view{out: out, colour: colour}
	v.mu.last = time.Now()
	return v
}

// Styles of a terminal (ECMA-48, SGR).
const (
	bold  = "1"
	dim   = "2"
	green = "32"
	amber = "33"
	red   = "31"
)

func (v *view) paint(style, text string) string {
	if !v.colour {
		return text
	}
	return "\x1b[" + style + "m" + text + "\x1b[0m"
}

func (v *view) title() {
	fmt.Fprintf(v.out, "%s\n\n", v.paint(bold, "walrelay demo: everything on this machine, and nothing of it stays"))
}

// progress tells that a step takes its time.
func (v *view) progress(text string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	fmt.Fprintf(v.out, "  %s\n", v.paint(dim, text))
}

// step tells that something is done, and how long it took.
func (v *view) step(text string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	now := time.Now()
	fmt.Fprintf(v.out, "  %-64s %s\n", text, v.paint(dim, fmt.Sprintf("%4.1f s", now.Sub(v.mu.last).Seconds())))
	v.mu.last = now
}

const row = "%-26s %-8s %-20s %10s\n"

func (v *view) ready(address string, rate float64, d time.Duration) {
	page := ""
	if address != "off" {
		page = ", status page on http://" + address + "/"
	}
	v.step("relay" + page)
	end := "Ctrl-C ends it"
	if d > 0 {
		end = fmt.Sprintf("it ends after %s", d)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	fmt.Fprintf(v.out, "\nAn order service writes about %g events a second; %s.\n\n", rate, end)
	fmt.Fprint(v.out, v.paint(bold, fmt.Sprintf(row, "TOPIC", "KEY", "EVENT TYPE", "LATENCY")))
}

// event shows one event as a consumer sees it. The latency is from the return of COMMIT.
func (v *view) event(a arrival, latency time.Duration, warmUp bool) {
	style, text := green, milliseconds(latency)
	switch {
	case warmUp:
		style = dim
	case latency == 0:
		text = "at once" // the consumer had it before COMMIT returned to the service
	case latency > 100*time.Millisecond:
		style = red
	case latency > 10*time.Millisecond:
		style = amber
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	// Painted after it is aligned: the styles have no width.
	fmt.Fprintf(v.out, "%-26s %-8s %-20s %s", a.topic, a.key, a.eventType, v.paint(style, fmt.Sprintf("%10s", text)))
	if warmUp {
		fmt.Fprint(v.out, v.paint(dim, "  first use of the topic"))
	}
	fmt.Fprintln(v.out)
}

func (v *view) summary(t totals, lag string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	verdict := v.paint(green, fmt.Sprintf("%d lost, %d duplicates", t.lost, t.repeated))
	if t.lost+t.repeated > 0 {
		verdict = v.paint(red, fmt.Sprintf("%d lost, %d duplicates", t.lost, t.repeated))
	}
	fmt.Fprintf(v.out, "\n%s\n", v.paint(bold, "summary"))
	for _, line := range [][2]string{
		{"events", fmt.Sprintf("%d from %s: %s", t.events, transactions(t.transactions), verdict)},
		{"rolled back", fmt.Sprintf("%s, of whose events %d were seen", transactions(t.declined), t.phantoms)},
		{"latency", fmt.Sprintf("p50 %s, p99 %s of %d, from the return of COMMIT to the consumer", milliseconds(t.p50), milliseconds(t.p99), t.timed)},
		{"slot lag", lag},
	} {
		fmt.Fprintf(v.out, "  %-12s %s\n", line[0], line[1])
	}
}

func transactions(n int) string {
	if n == 1 {
		return "1 transaction"
	}
	return fmt.Sprintf("%d transactions", n)
}

func milliseconds(d time.Duration) string {
	ms := float64(d) / float64(time.Millisecond)
	if ms < 10 {
		return fmt.Sprintf("%.2f ms", ms)
	}
	return fmt.Sprintf("%.0f ms", ms)
}

func size(n int64) string {
	switch {
	case n < 1<<10:
		return fmt.Sprintf("%d B", n)
	case n < 1<<20:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
}
