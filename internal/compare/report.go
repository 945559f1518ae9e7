package compare

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Report is all that a run found out.
type Report struct {
	At       time.Time `json:"at"`
	Machine  string    `json:"machine"`
	Servers  string    `json:"servers"`
	Rate     int       `json:"events_per_second"`
	Seconds  float64   `json:"seconds"`
	Payload  int       `json:"payload_bytes"`
	PerTx    int       `json:"events_per_transaction"`
	Baseline Result    `json:"baseline"`
	Modes    []Result  `json:"modes"`
	LeftOut  []LeftOut `json:"left_out,omitempty"`
}

// LeftOut is a mode that could not be measured.
type LeftOut struct {
	Mode   string `json:"mode"`
	Reason string `json:"reason"`
}

// Result is one mode.
type Result struct {
	Mode   string   `json:"mode"`
	What   string   `json:"what,omitempty"`
	Events int      `json:"events"`
	Rate   float64  `json:"events_per_second,omitempty"`      // reached, to the arrival of the last
	CPU    float64  `json:"relay_cpu_us_per_event,omitempty"` // of the relay's process
	Peak   int64    `json:"relay_peak_rss_bytes,omitempty"`   // of the relay's process
	Cost   Cost     `json:"database"`                         // with the writers' own
	Spans  []Spread `json:"latency,omitempty"`                // from commit to consumer first, then its parts

	from  time.Time
	total *hdrhistogram.Histogram
}

// Spread is how the times of one span are distributed, in milliseconds.
type Spread struct {
	Name string  `json:"span"`
	P50  float64 `json:"p50_ms"`
	P90  float64 `json:"p90_ms"`
	P99  float64 `json:"p99_ms"`
	P999 float64 `json:"p99_9_ms"`
	Max  float64 `json:"max_ms"`
	N    int64   `json:"events"`
}

// fill takes over what the journal has.
func (r *Result) fill(j *journal, from time.Time) {
	for i, h := range j.histograms(from) {
		if i == 0 {
			r.total = h
		}
		ms := func(us int64) float64 { return float64(us) / 1000 }
		r.Spans = append(r.Spans, Spread{
			Name: spans[i].name, N: h.TotalCount(), Max: ms(h.Max()),
			P50: ms(h.ValueAtPercentile(50)), P90: ms(h.ValueAtPercentile(90)), P99: ms(h.ValueAtPercentile(99)), P999: ms(h.ValueAtPercentile(99.9)),
		})
	}
}

// JSON writes the report for programs.
func (r *Report) JSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(r)
}

// load says what was measured.
func (r *Report) load() string {
	return fmt.Sprintf("%d events/s for %.0f s, %d in a transaction, payload of about %d bytes", r.Rate, r.Seconds, r.PerTx, r.Payload)
}

// Text writes the report for a terminal.
func (r *Report) Text(out io.Writer) error {
	w := bufio.NewWriter(out)
	fmt.Fprintf(w, "%s; %s, on %s\n\n", r.load(), r.Servers, r.Machine)
	fmt.Fprintf(w, "%-24s %-15s %9s %9s %9s %9s %9s\n", "ms", "", "p50", "p90", "p99", "p99.9", "max")
	for i := range spans {
		for k, m := range r.Modes {
			name := ""
			if k == 0 {
				name = spans[i].name
			}
			s := m.Spans[i]
			fmt.Fprintf(w, "%-24s %-15s %9s %9s %9s %9s %9s\n", name, m.Mode, ms(s.P50), ms(s.P90), ms(s.P99), ms(s.P999), ms(s.Max))
		}
	}
	fmt.Fprintf(w, "\n%-16s %13s %8s %6s %7s %10s %9s %9s\n", "per event", "transactions", "updates", "dead", "WAL B", "CPU µs", "RSS MiB", "events/s")
	for _, m := range append([]Result{r.Baseline}, r.Modes...) {
		c := m.Cost
		fmt.Fprintf(w, "%-16s %13.2f %8.2f %6.2f %7.0f %10s %9s %9s\n", m.Mode, c.Transactions, c.Updated, c.Dead, c.WAL, some("%.0f", m.CPU), some("%.0f", m.MiB()), some("%.0f", m.Rate))
	}
	fmt.Fprintln(w, "CPU and RSS are the relay's; transactions and WAL are the whole server's, the writers' own included.")
	for _, l := range r.LeftOut {
		fmt.Fprintf(w, "%s is left out: %s\n", l.Mode, l.Reason)
	}
	return w.Flush()
}

// MiB is the peak of the relay's memory.
func (r Result) MiB() float64 { return float64(r.Peak) / (1 << 20) }

func some(format string, v float64) string {
	if v == 0 {
		return "–"
	}
	return fmt.Sprintf(format, v)
}

// ms has three significant digits or so.
func ms(v float64) string {
	switch {
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}
