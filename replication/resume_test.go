package replication

import (
	"errors"
	"testing"

	"github.com/jackc/pglogrepl"

	"walrelay/checkpoint"
)

// A transaction as the stream shows it: rows of it are given to the filter one by one.
type sent struct {
	xid        uint32
	final, end pglogrepl.LSN
	rows       int
}

// play gives transactions to the filter and writes down what became of each row:
// p published, s settled only, h held back, - passed over; ! where the position was found, X where the
// filter proved another history.
func play(t *testing.T, r resume, txns ...sent) string {
	t.Helper()
	var story []byte
	for _, txn := range txns {
		if err := r.begin(txn.xid, txn.final); err != nil {
			if !errors.Is(err, errUnmatched) {
				t.Fatal(err)
			}
			return string(append(story, 'X'))
		}
		for range txn.rows {
			story = append(story, "p-sh"[r.row()])
		}
		found, err := r.commit(txn.xid, txn.end)
		if err != nil {
			return string(append(story, 'X'))
		}
		if found {
			story = append(story, '!')
		}
		story = append(story, ' ')
	}
	return string(story)
}

func TestResume(t *testing.T) {
	at100 := checkpoint.Carried{End: 100, XID: 7, Settled: 60}
	partial := checkpoint.Carried{End: 100, XID: 7, Settled: 100,
		Part: checkpoint.Part{XID: 9, Final: 120, Rows: 3, Settled: 1}}
	for _, c := range []struct {
		name      string
		carried   checkpoint.Carried
		confirmed pglogrepl.LSN
		txns      []sent
		want      string
	}{
		{"nothing is known", checkpoint.Carried{}, 50, []sent{{5, 70, 80, 2}}, "pp "},
		{"the slot has confirmed the position", at100, 100, []sent{{8, 100, 110, 2}}, "pp "},
		{"the slot has forgotten: settled rows pass, unsettled ones are held until the position comes", at100, 40,
			[]sent{{5, 45, 50, 2}, {6, 70, 80, 1}, {7, 90, 100, 2}, {8, 100, 110, 1}}, "-- h hh! p "},
		{"transactions begin to commit where the settled one, and the position's own, have ended", at100, 40,
			[]sent{{5, 45, 60, 1}, {6, 60, 70, 1}, {7, 90, 100, 1}, {8, 100, 110, 1}}, "- h h! p "},
		{"H4: a transaction comes in place of the position's own and begins to commit where that ended", at100, 40,
			[]sent{{5, 45, 60, 1}, {8, 100, 110, 1}}, "- X"},
		{"H4: a transaction behind the position comes first", at100, 40, []sent{{5, 45, 50, 1}, {8, 101, 110, 1}}, "- X"},
		{"H4: another transaction ends at the position", at100, 40, []sent{{6, 90, 100, 1}}, "hX"},
		{"H4: a transaction spans the position", at100, 40, []sent{{6, 90, 105, 1}}, "hX"},
		{"a transaction larger than the window: what must be held is what was not settled",
			checkpoint.Carried{End: 100, XID: 7, Settled: 60, Unsettled: checkpoint.Part{XID: 7, Final: 90, Rows: 3}}, 40,
			[]sent{{7, 90, 100, 5}}, "---hh! "},
		{"H15: the part of a transaction is not sent twice", partial, 100, []sent{{9, 120, 130, 5}, {10, 131, 140, 1}}, "-sspp p "},
		{"H15: the part is another transaction's", partial, 100, []sent{{11, 120, 130, 2}}, "pp "},
		{"H15: the part comes after whole transactions", partial, 50, []sent{{7, 90, 100, 1}, {9, 120, 130, 4}}, "-! -ssp "},
	} {
		if got := play(t, newResume(c.carried, c.confirmed), c.txns...); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestH04KeepalivePastAPositionThatNeverCame(t *testing.T) {
	r := newResume(checkpoint.Carried{End: 100, XID: 7}, 40)
	if err := r.idle(99); err != nil {
		t.Errorf("before the position: %v", err)
	}
	if err := r.idle(100); !errors.Is(err, errUnmatched) {
		t.Errorf("the server has sent everything up to the position, but not its transaction: %v", err)
	}
}

func TestBound(t *testing.T) {
	c := checkpoint.Carried{End: 100, XID: 7, Part: checkpoint.Part{XID: 9, Final: 120, Rows: 3}}
	from := history{"sys", 2, "slot"}
	for _, tc := range []struct {
		name string
		to   history
		fork pglogrepl.LSN
		end  pglogrepl.LSN
		part uint32
	}{
		{"the same server", history{"sys", 2, "slot"}, 0, 100, 3},
		{"another cluster", history{"other", 2, "slot"}, 0, 0, 0},
		{"another slot", history{"sys", 2, "new"}, 0, 0, 0},
		{"an older timeline", history{"sys", 1, "slot"}, 0, 0, 0},
		{"promoted after everything", history{"sys", 3, "slot"}, 200, 100, 3},
		{"promoted inside the part", history{"sys", 3, "slot"}, 110, 100, 0},
		{"promoted before the position", history{"sys", 3, "slot"}, 90, 0, 0},
	} {
		got, why, err := bound(from, tc.to, c, func() (pglogrepl.LSN, error) { return tc.fork, nil })
		if err != nil || got.End != tc.end || got.Part.Rows != tc.part || (got.End == 0) != (why != "") {
			t.Errorf("%s: %+v, %q, %v", tc.name, got, why, err)
		}
	}
}

func TestH04ServerWhoseWALEndsBeforeThePosition(t *testing.T) {
	whole := checkpoint.Carried{End: 100, XID: 7}
	partial := checkpoint.Carried{End: 100, XID: 7, Part: checkpoint.Part{XID: 9, Final: 120, Rows: 3}}
	for _, tc := range []struct {
		c       checkpoint.Carried
		flushed pglogrepl.LSN
		want    bool
	}{
		{checkpoint.Carried{}, 40, false}, {whole, 99, true}, {whole, 100, false}, {partial, 110, true}, {partial, 120, false},
	} {
		if got := beyond(tc.c, tc.flushed); got != tc.want {
			t.Errorf("%+v, WAL up to %s: %v", tc.c, tc.flushed, got)
		}
	}
}
