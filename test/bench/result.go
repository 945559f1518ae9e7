package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"text/tabwriter"
)

// result is all that a run found out.
type result struct {
	At         string    `json:"at"`
	Commit     string    `json:"commit"`
	Machine    string    `json:"machine"`
	PostgreSQL string    `json:"postgresql"`
	Kafka      string    `json:"kafka"`
	Rows       int       `json:"rows"`
	Seconds    float64   `json:"seconds"`
	Bars       []verdict `json:"bars"`
	Drains     []figures `json:"drains,omitempty"`
	Big        []figures `json:"big,omitempty"`
	Large      figures   `json:"large,omitzero"`
	Outage     outage    `json:"outage,omitzero"`
	Latencies  []latency `json:"latencies,omitempty"`
	Idle       idle      `json:"idle,omitzero"`
	Polled     []figures `json:"polling_drains,omitempty"`
	PollIdle   idle      `json:"polling_idle,omitzero"`
}

// bound is what a figure must reach; the zero value is none.
type bound struct {
	limit float64
	least bool
	set   bool
}

var published bound // measured and published, without a bar

func atMost(limit float64) bound  { return bound{limit: limit, set: true} }
func atLeast(limit float64) bound { return bound{limit: limit, least: true, set: true} }

func (b bound) String() string {
	switch {
	case !b.set:
		return "–"
	case b.least:
		return fmt.Sprintf("≥ %v", b.limit)
	}
	return fmt.Sprintf("≤ %v", b.limit)
}

func (b bound) meets(value float64) string {
	switch {
	case !b.set:
		return "published"
	case b.least && value >= b.limit, !b.least && value <= b.limit:
		return "reached"
	}
	return "MISSED"
}

// verdict is one figure beside its bar.
type verdict struct {
	Name    string  `json:"figure"`
	Value   float64 `json:"value"`
	Unit    string  `json:"unit,omitempty"`
	Bar     string  `json:"bar"`
	Verdict string  `json:"verdict"`
}

func (r *result) bar(name string, value float64, unit string, b bound) {
	r.Bars = append(r.Bars, verdict{name, value, unit, b.String(), b.meets(value)})
}

// table is one block of the output, printed as text or as Markdown.
type table struct {
	title string
	note  string
	head  []string
	rows  [][]string
}

func (r *result) tables() []table {
	all := []table{r.barTable()}
	if len(r.Drains) > 0 {
		all = append(all, drainTable("Drains", fmt.Sprintf("%d rows in transactions of %d, about 300 bytes of jsonb, 1,000 keys; first to last record. "+
			"Each relay beside the null readers right before and after it, in the order of the run.", r.Rows, perTransaction), r.Drains))
	}
	if len(r.Big) > 0 {
		all = append(all, drainTable("One transaction", fmt.Sprintf("%d rows in one transaction.", r.Rows), r.Big))
	}
	if len(r.Polled) > 0 {
		all = append(all, drainTable("Polling", fmt.Sprintf("RELAY_MODE=polling; %d rows in transactions of %d, the same rows as above. A row that is read is settled before the next batch is.", r.Rows, perTransaction), r.Polled))
	}
	if r.Outage.Committed > 0 {
		all = append(all, r.Outage.table())
	}
	if len(r.Latencies) > 0 {
		all = append(all, latencyTable(r.Latencies))
	}
	return all
}

func (r *result) barTable() table {
	t := table{title: "What was to be reached", head: []string{"figure", "measured", "bar", "verdict"}}
	for _, v := range r.Bars {
		t.rows = append(t.rows, []string{v.Name, strings.TrimSpace(number(v.Value) + " " + v.Unit), v.Bar, v.Verdict})
	}
	return t
}

func drainTable(title, note string, all []figures) table {
	t := table{title: title, note: note, head: []string{"reader", "socket", "rows/s", "÷ null reader", "settled rows/s", "CPU µs/row", "peak RSS MiB", "start to first s", "start to last s"}}
	for _, f := range all {
		t.rows = append(t.rows, []string{f.What, f.Socket, fmt.Sprintf("%.0f", f.Rate), measured(f.Ratio), count(f.Settled),
			fmt.Sprintf("%.2f", f.CPU), count(mib(f.Peak)), measured(f.First), fmt.Sprintf("%.2f", f.FromStart)})
	}
	return t
}

// number prints three significant digits or so; measured and count leave out what was not measured.
func number(v float64) string {
	switch {
	case v == 0:
		return "0"
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

func measured(v float64) string {
	if v == 0 {
		return ""
	}
	return number(v)
}

func count(v float64) string {
	if v == 0 {
		return ""
	}
	return fmt.Sprintf("%.0f", v)
}

func (r *result) about() string {
	return fmt.Sprintf("%s, %s, on %s; commit %s, %s, %.0f s.", r.PostgreSQL, r.Kafka, r.Machine, r.Commit, r.At, r.Seconds)
}

// text is for the terminal.
func (r *result) text() string {
	var out strings.Builder
	fmt.Fprintln(&out, r.about())
	for _, t := range r.tables() {
		fmt.Fprintf(&out, "\n%s\n", t.title)
		if t.note != "" {
			fmt.Fprintln(&out, t.note)
		}
		w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
		for _, row := range append([][]string{t.head}, t.rows...) {
			fmt.Fprintln(w, "  "+strings.Join(row, "\t"))
		}
		w.Flush() // writes to memory
	}
	return out.String()
}

func (r *result) markdown() string {
	var out strings.Builder
	fmt.Fprintln(&out, r.about())
	for _, t := range r.tables() {
		fmt.Fprintf(&out, "\n### %s\n\n", t.title)
		if t.note != "" {
			fmt.Fprintf(&out, "%s\n\n", t.note)
		}
		fmt.Fprintf(&out, "| %s |\n|%s\n", strings.Join(t.head, " | "), strings.Repeat("---|", len(t.head)))
		for _, row := range t.rows {
			fmt.Fprintf(&out, "| %s |\n", strings.Join(row, " | "))
		}
	}
	return out.String()
}

func (r *result) writeJSON(path string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err == nil {
		err = os.WriteFile(path, append(text, '\n'), 0o644)
	}
	if err != nil {
		return fmt.Errorf("write the results: %w", err)
	}
	return nil
}

// The lines of a Markdown file between which the tables stand.
const (
	markBegin = "<!-- make bench begins -->"
	markEnd   = "<!-- make bench ends -->"
)

// writeMarkdown replaces what stands between the marks.
func (r *result) writeMarkdown(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("write the tables: %w", err)
	}
	head, rest, found := strings.Cut(string(text), markBegin)
	_, tail, ended := strings.Cut(rest, markEnd)
	if !found || !ended {
		return fmt.Errorf("write the tables: %s has no lines %q and %q", path, markBegin, markEnd)
	}
	whole := head + markBegin + "\n\n" + r.markdown() + "\n" + markEnd + tail
	if err := os.WriteFile(path, []byte(whole), 0o644); err != nil {
		return fmt.Errorf("write the tables: %w", err)
	}
	return nil
}
