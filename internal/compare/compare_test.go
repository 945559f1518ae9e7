package compare

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"walrelay/outbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The stamps of a relay arrive as they were made, also those of the last moment.
func TestTrace(t *testing.T) {
	r, w := io.Pipe()
	trace, done := NewTraceWriter(w), make(chan struct{})
	j := newJournal()
	ids := []outbox.EventID{{1}, {2}}
	began := time.Now()
	j.expect(ids, began)
	ended := make(chan error, 1)
	go func() {
		err := trace.Run(done)
		w.Close()
		ended <- err
	}()
	trace.Received(ids[0])
	trace.Received(ids[1])
	trace.Acked(ids[0])
	trace.Received(ids[0]) // again: the first time counts
	trace.Acked(outbox.EventID{9})
	close(done)
	if err := readTrace(r, j); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	first, second := j.mu.events[ids[0]], j.mu.events[ids[1]]
	if first[received].Before(began.Round(0)) || first[acked].Before(first[received]) || second[received].IsZero() || !second[acked].IsZero() || len(j.mu.events) != 2 {
		t.Errorf("first %v, second %v", first, second)
	}
	if err := readTrace(strings.NewReader("no stamp of a relay, whatever it is"), j); err == nil {
		t.Error("nonsense was read as a trace")
	}
	if err := readTrace(strings.NewReader("r"), j); err == nil {
		t.Error("half a stamp was read as a trace")
	}
}

// report is of two modes, one a hundred times slower than the other.
func report(t *testing.T) *Report {
	t.Helper()
	r := &Report{At: time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC), Machine: "2 cores", Servers: "PostgreSQL 17", Rate: 100, Seconds: 5, Payload: 300, PerTx: 1,
		Baseline: Result{Mode: "writers alone", Cost: Cost{Transactions: 1, WAL: 700}}, LeftOut: []LeftOut{{"polling", "a <reason>"}}}
	for k, slow := range []time.Duration{1, 100} {
		j := newJournal()
		began := time.Now()
		for i := range 1000 {
			id := outbox.EventID{byte(i), byte(i >> 8)}
			at := began.Add(time.Duration(i) * time.Millisecond)
			j.expect([]outbox.EventID{id}, at)
			for s := committed; s < stations; s++ {
				at = at.Add(slow * time.Duration(100+i) * time.Microsecond)
				j.note(id, s, at)
			}
		}
		if j.waiting() != 0 {
			t.Fatalf("%d events are waited for", j.waiting())
		}
		m := Result{Mode: []string{"wal", "polling+notify"}[k], Events: 1000, Rate: 99, CPU: 42, Peak: 30 << 20, Cost: Cost{Transactions: 2, Updated: 1, Dead: 1, WAL: 1400}}
		m.fill(j, began)
		r.Modes = append(r.Modes, m)
	}
	return r
}

func TestSpans(t *testing.T) {
	s := report(t).Modes[0].Spans
	if len(s) != len(spans) || s[0].N != 1000 {
		t.Fatalf("spans %+v", s)
	}
	// Three parts of 100 to 1,099 µs each.
	if s[0].P50 < 1.75 || s[0].P50 > 1.85 || s[0].Max < 3.25 || s[0].Max > 3.35 || s[3].P50 < 0.58 || s[3].P50 > 0.62 {
		t.Errorf("spans %+v", s)
	}
}

func TestText(t *testing.T) {
	var out bytes.Buffer
	if err := report(t).Text(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"100 events/s for 5 s", "commit → consumer", "wal", "polling+notify", "writers alone", "polling is left out: a <reason>"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing:\n%s", want, &out)
		}
	}
}

func TestJSON(t *testing.T) {
	var out bytes.Buffer
	if err := report(t).JSON(&out); err != nil {
		t.Fatal(err)
	}
	var back Report
	if err := json.Unmarshal(out.Bytes(), &back); err != nil || len(back.Modes) != 2 || len(back.Modes[1].Spans) != len(spans) {
		t.Errorf("%v\n%s", err, &out)
	}
}

// The page needs no network and holds what was measured.
func TestHTML(t *testing.T) {
	var out bytes.Buffer
	if err := report(t).HTML(&out); err != nil {
		t.Fatal(err)
	}
	page := out.String()
	for _, never := range []string{"http:", "https:", "src=", "@import", "NaN", "Inf", "ZgotmplZ", "<reason>"} {
		if strings.Contains(page, never) {
			t.Errorf("the page has %q", never)
		}
	}
	for _, want := range []string{"polling is left out: a &lt;reason&gt;", `class="curve m1"`, `class="area m1"`, "light-dark("} {
		if !strings.Contains(page, want) {
			t.Errorf("%q is missing", want)
		}
	}
	if n := strings.Count(page, "<svg"); n != 2 || n != strings.Count(page, "</svg>") {
		t.Errorf("%d drawings", n)
	}
}

func TestParseID(t *testing.T) {
	want := outbox.EventID{1, 2, 3, 255}
	if id, ok := parseID([]byte(want.String())); !ok || id != want {
		t.Errorf("%v %v", id, ok)
	}
	for _, text := range []string{"", "nonsense", strings.Repeat("x", 36), strings.Repeat("0", 36)} {
		if _, ok := parseID([]byte(text)); ok {
			t.Errorf("%q was read as an id", text)
		}
	}
}
