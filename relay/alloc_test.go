package relay

import (
	"compress/gzip"
	"encoding/binary"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/caarlos0/env/v11"
	"github.com/jackc/pglogrepl"

	"walrelay/checkpoint"
	"walrelay/decoder"
	"walrelay/outbox"
	"walrelay/router"
)

// allocationLimit is the promise of docs/benchmarks.md for decoder, router and tracker together.
const allocationLimit = 2

// TestAllocationsPerEvent follows recorded rows of every major through decoder, router and tracker, as
// a session does, up to the row being settled.
func TestAllocationsPerEvent(t *testing.T) {
	paths, err := filepath.Glob("../decoder/testdata/*/outbox_rows*.bin.gz")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no recordings: %v", err)
	}
	for _, path := range paths {
		name := filepath.Base(filepath.Dir(path)) + "/" + filepath.Base(path)
		p := newPath(t, path)
		events := p.pass(t)
		if events == 0 {
			t.Errorf("%s: no events", name)
			continue
		}
		perEvent := testing.AllocsPerRun(200, func() { p.pass(t) }) / float64(events)
		if perEvent > allocationLimit {
			t.Errorf("%s: %.2f allocations per event, want at most %d", name, perEvent, allocationLimit)
		}
	}
}

func BenchmarkEvent(b *testing.B) {
	p := newPath(b, "../decoder/testdata/15/outbox_rows.bin.gz")
	b.ReportAllocs()
	events := 0
	for b.Loop() {
		events += p.pass(b)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(events), "ns/event")
}

// eventPath is everything that an event passes but the sockets.
type eventPath struct {
	messages [][]byte // of one stream, which is passed again and again
	decoder  *decoder.Decoder
	router   *router.Router
	tracker  *checkpoint.Tracker
	record   router.Record
	pending  []checkpoint.Pending
	end      pglogrepl.LSN // positions only rise, however often the stream is passed
}

func newPath(tb testing.TB, recording string) *eventPath {
	tb.Helper()
	var columns outbox.Config
	var routes router.Config
	for _, cfg := range []any{&columns, &routes} {
		if err := env.ParseWithOptions(cfg, env.Options{Environment: map[string]string{}}); err != nil {
			tb.Fatal(err)
		}
	}
	r, err := router.New(routes, "shop")
	if err != nil {
		tb.Fatal(err)
	}
	return &eventPath{
		messages: recorded(tb, recording),
		decoder:  decoder.New(outbox.Table{Schema: "public", Name: "outbox"}, columns.Columns, 1<<20),
		router:   r,
		tracker:  checkpoint.NewTracker(checkpoint.Options{Rows: 64, Settles: true}),
	}
}

// recorded reads the pgoutput messages of a recording: frames of a four-byte length and one CopyData
// payload, of which XLogData holds the message behind 25 bytes.
func recorded(tb testing.TB, path string) [][]byte {
	tb.Helper()
	const header = 25
	file, err := os.Open(path)
	if err != nil {
		tb.Fatal(err)
	}
	defer file.Close()
	zip, err := gzip.NewReader(file)
	if err != nil {
		tb.Fatal(err)
	}
	stream, err := io.ReadAll(zip)
	if err != nil {
		tb.Fatalf("%s: %v", path, err)
	}
	var messages [][]byte
	for len(stream) >= 4 {
		n := int(binary.BigEndian.Uint32(stream))
		frame := stream[4 : 4+n]
		if n > header && frame[0] == 'w' {
			messages = append(messages, frame[header:])
		}
		stream = stream[4+n:]
	}
	return messages
}

// pass takes the whole stream once and returns the number of events in it.
func (p *eventPath) pass(tb testing.TB) (events int) {
	for _, msg := range p.messages {
		kind, err := p.decoder.Decode(msg)
		if err != nil {
			tb.Fatal(err)
		}
		switch kind {
		case decoder.KindBegin:
			p.end++
			err = p.tracker.Open(p.decoder.Begin().XID, p.end)
		case decoder.KindInsert:
			var published bool
			published, err = p.insert()
			if published {
				events++
			}
		case decoder.KindCommit:
			p.end++
			if err = p.tracker.Close(p.end); err == nil {
				err = p.settle()
			}
		}
		if err != nil {
			tb.Fatal(err)
		}
	}
	if got := p.tracker.Confirmable(); got != p.end {
		tb.Fatalf("confirmable up to %s, want %s", got, p.end)
	}
	return events
}

func (p *eventPath) insert() (published bool, err error) {
	ev := p.decoder.Event()
	if ev == nil || ev.Published {
		p.tracker.Skip(1)
		return false, nil
	}
	ev.Position = outbox.Position{Timeline: 1, LSN: p.end, Ordinal: p.tracker.Ordinal()}
	token := p.tracker.Add(checkpoint.Row{RowID: ev.RowID, EventID: ev.ID}, ev.Size)
	if ev.AggregateType == nil || len(ev.AggregateType) > 0 { // an empty one has no topic; the sink is not asked then
		if err := p.router.Route(ev, &p.record); err != nil {
			return false, err
		}
	}
	return true, p.tracker.Done(token)
}

func (p *eventPath) settle() error {
	p.pending = p.tracker.Pending(p.pending[:0], 64)
	for _, row := range p.pending {
		if err := p.tracker.Settled(row.Token); err != nil {
			return err
		}
	}
	return nil
}
