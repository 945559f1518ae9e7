package decoder

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"walrelay/outbox"
)

var update = flag.Bool("update", false, "write the golden files of TestGolden anew")

// defaultColumns are the names that outbox.Config has by default.
func defaultColumns() outbox.Columns {
	return outbox.Columns{
		ID: "id", EventID: "event_id", AggregateType: "aggregate_type", AggregateID: "aggregate_id", EventType: "event_type",
		Payload: "payload", Headers: "headers", Topic: "topic", PartitionKey: "partition_key",
		CreatedAt: "created_at", PublishedAt: "published_at",
	}
}

// view is one way to look at a recording: as if this table, with these columns, were the outbox.
type view struct {
	name    string
	table   string
	columns outbox.Columns
}

// views of a scenario. The first recordings are of tables that are no outbox: what fits of them is
// mapped to one, and for the rest it is the messages and the errors that are printed.
func views(scenario string) []view {
	native := view{"", "outbox", defaultColumns()}
	switch scenario {
	case "types":
		mapped := outbox.Columns{ID: "id", EventID: "u", AggregateType: "t", AggregateID: "u", EventType: "t",
			Headers: "j", Topic: "n", PartitionKey: "id", CreatedAt: "ts", PublishedAt: "ts"}
		var all []view
		for _, payload := range []string{"j", "b", "t", "big", "n"} {
			mapped.Payload = payload
			all = append(all, view{"payload " + payload, "types", mapped})
		}
		mapped.Payload = "u"
		return append(all, view{"payload uuid", "types", mapped})
	case "truncate":
		return []view{native, {"table tr1", "tr1", native.columns}, {"table tr2", "tr2", native.columns}}
	case "part_root":
		return []view{native, {"table par", "par", native.columns}}
	case "usertype":
		types := native.columns
		types.EventID, types.AggregateType, types.AggregateID, types.EventType = "d", "m", "nu", "ms"
		return []view{native, {"table ut", "ut", types}}
	}
	return []view{native}
}

// TestGolden decodes every recording of every major, and compares what came out, in words, with
// testdata/<major>.txt.
func TestGolden(t *testing.T) {
	printed := make(map[string]*bytes.Buffer)
	for _, rec := range recordings(t) {
		out := printed[rec.major]
		if out == nil {
			out = new(bytes.Buffer)
			printed[rec.major] = out
		}
		for _, v := range views(rec.base()) {
			fmt.Fprintf(out, "## %s %s\n", rec.scenario, v.name)
			d := New(outbox.Table{Schema: "public", Name: v.table}, v.columns, 0)
			whole := messages(rec.stream, func(msg []byte) {
				msg = spare(msg)
				kind, err := d.Decode(msg)
				fmt.Fprintln(out, strings.TrimRight(describe(d, kind, err), " "))
				if v.table == "outbox" && rec.base() != "outbox_poison" && err != nil {
					t.Errorf("%s/%s: %v", rec.major, rec.scenario, err)
				}
				// Nothing that the decoder keeps for the next message may lie in this one.
				scribble(msg)
			})
			if !whole {
				t.Errorf("%s/%s: cut short", rec.major, rec.scenario)
			}
		}
	}
	for major, out := range printed {
		path := filepath.Join("testdata", major+".txt")
		if *update {
			if err := os.WriteFile(path, out.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		compareLines(t, path, out.Bytes(), want)
	}
}

func compareLines(t *testing.T, path string, got, want []byte) {
	t.Helper()
	g, w := strings.Split(string(got), "\n"), strings.Split(string(want), "\n")
	for i := range min(len(g), len(w)) {
		if g[i] != w[i] {
			t.Errorf("%s:%d:\n got %s\nwant %s\n(-update writes the file anew)", path, i+1, g[i], w[i])
			return
		}
	}
	if len(g) != len(w) {
		t.Errorf("%s: %d lines, want %d", path, len(g), len(w))
	}
}

// describe prints all that the decoder says of the last message.
func describe(d *Decoder, kind Kind, err error) string {
	line := kind.String()
	var row *RowError
	if err != nil && !errors.As(err, &row) {
		return line + " ERROR " + err.Error()
	}
	switch kind {
	case KindBegin:
		b := d.Begin()
		line += fmt.Sprintf(" final %s xid %d at %s", b.FinalLSN, b.XID, b.CommitTime.Format(time.RFC3339Nano))
	case KindCommit:
		c := d.Commit()
		line += fmt.Sprintf(" commit %s end %s at %s", c.CommitLSN, c.EndLSN, c.CommitTime.Format(time.RFC3339Nano))
	case KindTruncate:
		line += fmt.Sprintf(" ours %t", d.Truncated())
	case KindInsert:
		line += " " + describeEvent(d.Event())
	}
	if err != nil {
		line += " ROW ERROR " + err.Error()
	}
	return line
}

func describeEvent(ev *outbox.Event) string {
	if ev == nil {
		return "of another relation"
	}
	created := "none"
	if !ev.CreatedAt.IsZero() {
		created = ev.CreatedAt.Format(time.RFC3339Nano)
	}
	return fmt.Sprintf("row %d event %s aggregate %s %s type %s key %s topic %s created %s published %t size %d headers %s payload %s",
		ev.RowID, ev.ID, value(ev.AggregateType), value(ev.AggregateID), value(ev.EventType), value(ev.PartitionKey),
		value(ev.Topic), created, ev.Published, ev.Size, value(ev.Headers), value(ev.Payload))
}

// value prints a column: NULL, text in quotes, bytes in hexadecimal, and a long run of one byte short.
func value(b []byte) string {
	const long = 1000
	switch {
	case b == nil:
		return "NULL"
	case len(b) > long:
		at := len(b) / 2
		from, to := at, at
		for from > 0 && b[from-1] == b[at] {
			from--
		}
		for to < len(b) && b[to] == b[at] {
			to++
		}
		if to-from < len(b)-long {
			return fmt.Sprintf("<%d bytes>", len(b))
		}
		return fmt.Sprintf("%s<%q*%d>%s", value(b[:from]), b[at], to-from, value(b[to:]))
	case !utf8.Valid(b):
		return fmt.Sprintf("x%x", b)
	}
	return fmt.Sprintf("%q", b)
}

// TestEventAliases holds the memory contract: the text columns lie in the message itself (nothing was
// copied), and a printed binary key does not.
func TestEventAliases(t *testing.T) {
	d := New(outbox.Table{Schema: "public", Name: "outbox"}, defaultColumns(), 0)
	msg := encodeRelation(1, "public", "outbox", nativeColumns())
	if _, err := d.Decode(msg); err != nil {
		t.Fatal(err)
	}
	scribble(msg)
	msg = encodeInsert(1, nativeText())
	if _, err := d.Decode(msg); err != nil {
		t.Fatal(err)
	}
	ev := *d.Event()
	id, created := ev.ID, ev.CreatedAt
	scribble(msg)
	for name, b := range map[string][]byte{"payload": ev.Payload, "headers": ev.Headers, "aggregate id": ev.AggregateID, "topic": ev.Topic} {
		if len(b) == 0 || slices.ContainsFunc(b, func(c byte) bool { return c != 0xa5 }) {
			t.Errorf("%s does not alias the message: %q", name, b)
		}
		if cap(b) != len(b) {
			t.Errorf("%s: an append to it would write into the column behind", name)
		}
	}
	if d.Event().ID != id || !d.Event().CreatedAt.Equal(created) || id.String() != "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11" {
		t.Error("ids or times changed with the message")
	}
}

// TestMajorsAgree: one service, one table, and the server's major makes no difference to an event. Only
// the empty transactions of PostgreSQL 14 do, which are left out here with all other begins and commits.
func TestMajorsAgree(t *testing.T) {
	type first struct {
		major string
		lines []string
	}
	seen := make(map[string]first)
	for _, rec := range recordings(t) {
		d := newDecoder(0)
		var lines []string
		messages(rec.stream, func(msg []byte) {
			kind, err := d.Decode(msg)
			if kind != KindBegin && kind != KindCommit {
				lines = append(lines, describe(d, kind, err))
			}
		})
		if was, ok := seen[rec.scenario]; !ok {
			seen[rec.scenario] = first{rec.major, lines}
		} else if !slices.Equal(was.lines, lines) {
			t.Errorf("%s: %s and %s differ:\n%s\n\n%s", rec.scenario, was.major, rec.major,
				strings.Join(was.lines, "\n"), strings.Join(lines, "\n"))
		}
	}
}
