package compare

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"math"
	"strings"

	"github.com/HdrHistogram/hdrhistogram-go"
)

//go:embed report.html
var page string

// The drawing area, in the units of the SVG.
const (
	plotWidth  = 640.0
	plotHeight = 260.0
	plotLeft   = 56.0
	plotTop    = 12.0
	plotBottom = 34.0
)

// figure is one drawing: axes and one shape for each mode.
type figure struct {
	Width, Height float64
	XTicks        []tick
	YTicks        []tick
	Shapes        []shape
	Left, Right   float64
	Top, Bottom   float64
}

type tick struct {
	At    float64
	Label string
}

type shape struct {
	Mode string
	N    int // its colour
	Path string
}

// HTML writes the report as one page that needs nothing else.
func (r *Report) HTML(w io.Writer) error {
	t, err := template.New("report").Funcs(template.FuncMap{
		"ms": ms, "some": some, "f2": func(v float64) string { return fmt.Sprintf("%.2f", v) }, "f0": func(v float64) string { return fmt.Sprintf("%.0f", v) },
	}).Parse(page)
	if err != nil {
		return err
	}
	return t.Execute(w, struct {
		*Report
		Load       string
		Percentile figure
		Histograms figure
		Parts      []bar
		Rows       []line
		All        []Result
	}{r, r.load(), r.percentiles(), r.distribution(), r.parts(), r.lines(), append([]Result{r.Baseline}, r.Modes...)})
}

// line is one row of the table of spans.
type line struct {
	Span, Mode string
	Spread
}

func (r *Report) lines() []line {
	var all []line
	for i := range spans[1:] {
		for k, m := range r.Modes {
			l := line{Mode: m.Mode, Spread: m.Spans[i+1]}
			if k == 0 {
				l.Span = l.Name
			}
			all = append(all, l)
		}
	}
	return all
}

// scale is a logarithmic axis of milliseconds.
type scale struct{ low, high float64 }

// scaleOf takes in all modes, in whole powers of ten.
func (r *Report) scaleOf() scale {
	low, high := math.Inf(1), 0.0
	for _, m := range r.Modes {
		low, high = min(low, ms64(m.total.ValueAtPercentile(1))), max(high, ms64(m.total.Max()))
	}
	if high == 0 {
		low, high = 1, 10
	}
	return scale{math.Floor(math.Log10(max(low, 0.01))), math.Ceil(math.Log10(max(high, 0.01)))}
}

func ms64(us int64) float64 { return float64(us) / 1000 }

// of is where a value lies, from 0 to 1.
func (s scale) of(v float64) float64 {
	return max(0, (math.Log10(max(v, 0.0001))-s.low)/(s.high-s.low))
}

func (s scale) ticks(at func(float64) float64) []tick {
	var all []tick
	for e := s.low; e <= s.high; e++ {
		v := math.Pow(10, e)
		label := fmt.Sprintf("%g ms", v)
		if v >= 1000 {
			label = fmt.Sprintf("%g s", v/1000)
		}
		all = append(all, tick{at(s.of(v)), label})
	}
	return all
}

func frame() figure {
	return figure{Width: plotWidth, Height: plotHeight, Left: plotLeft, Right: plotWidth - 24, Top: plotTop, Bottom: plotHeight - plotBottom}
}

// LabelX and LabelY are where the labels of the axes stand.
func (f figure) LabelX() float64 { return f.Left - 6 }
func (f figure) LabelY() float64 { return f.Bottom + 18 }

func (f figure) x(share float64) float64 { return f.Left + share*(f.Right-f.Left) }
func (f figure) y(share float64) float64 { return f.Bottom - share*(f.Bottom-f.Top) }

// percentiles draws latency over the share of events that were faster; each step to the right is ten
// times rarer.
func (r *Report) percentiles() figure {
	f, s := frame(), r.scaleOf()
	const rarest = 4.0 // 99.99 %
	f.YTicks = s.ticks(f.y)
	for _, p := range []float64{0, 50, 90, 99, 99.9, 99.99} {
		f.XTicks = append(f.XTicks, tick{f.x(-math.Log10(1-p/100) / rarest), fmt.Sprintf("%g %%", p)})
	}
	for i, m := range r.Modes {
		var path strings.Builder
		for step := 0.0; step <= rarest; step += 0.04 {
			p := 100 * (1 - math.Pow(10, -step))
			command := "L"
			if path.Len() == 0 {
				command = "M"
			}
			fmt.Fprintf(&path, "%s%.1f %.1f", command, f.x(step/rarest), f.y(s.of(ms64(m.total.ValueAtPercentile(p)))))
		}
		f.Shapes = append(f.Shapes, shape{Mode: m.Mode, N: i, Path: path.String()})
	}
	return f
}

// distribution draws how many of the events took how long, for each mode.
func (r *Report) distribution() figure {
	f, s := frame(), r.scaleOf()
	f.XTicks = s.ticks(f.x)
	const bins = 60
	most := 0.0
	shares := make([][]float64, len(r.Modes))
	for i, m := range r.Modes {
		shares[i] = make([]float64, bins)
		for _, b := range m.total.Distribution() {
			if b.Count == 0 {
				continue
			}
			at := min(bins-1, max(0, int(s.of(ms64(middle(b)))*bins)))
			shares[i][at] += float64(b.Count) / float64(m.total.TotalCount())
		}
		for _, v := range shares[i] {
			most = max(most, v)
		}
	}
	for _, v := range []float64{0, most / 2, most} {
		f.YTicks = append(f.YTicks, tick{f.y(v / most), fmt.Sprintf("%.0f %%", 100*v)})
	}
	for i, m := range r.Modes {
		var path strings.Builder
		fmt.Fprintf(&path, "M%.1f %.1f", f.x(0), f.y(0))
		for b, v := range shares[i] {
			fmt.Fprintf(&path, "L%.1f %.1fL%.1f %.1f", f.x(float64(b)/bins), f.y(v/most), f.x(float64(b+1)/bins), f.y(v/most))
		}
		fmt.Fprintf(&path, "L%.1f %.1fZ", f.x(1), f.y(0))
		f.Shapes = append(f.Shapes, shape{Mode: m.Mode, N: i, Path: path.String()})
	}
	return f
}

func middle(b hdrhistogram.Bar) int64 { return (b.From + b.To) / 2 }

// bar is the median of each part of an event's way, one behind the other.
type bar struct {
	Mode  string
	Sum   float64
	Parts []part
}

type part struct {
	Name  string
	N     int
	Share float64 // percent of the bar
	MS    float64
}

func (r *Report) parts() []bar {
	var all []bar
	for _, m := range r.Modes {
		b := bar{Mode: m.Mode}
		for i, s := range m.Spans[2:] { // behind the commit
			b.Parts = append(b.Parts, part{Name: s.Name, N: i, MS: s.P50})
			b.Sum += s.P50
		}
		for i := range b.Parts {
			b.Parts[i].Share = 100 * b.Parts[i].MS / max(b.Sum, 0.001)
		}
		all = append(all, b)
	}
	return all
}
