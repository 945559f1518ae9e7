package checkpoint

import (
	"testing"

	"github.com/jackc/pglogrepl"
)

func TestCarriedMergeKeepsWhatReachesFurther(t *testing.T) {
	part := func(final, rows, settled int) Part {
		return Part{XID: uint32(final), Final: pglogrepl.LSN(final), Rows: uint32(rows), Settled: uint32(settled)}
	}
	at := func(end, settled int, p Part) Carried {
		return Carried{End: pglogrepl.LSN(end), XID: uint32(end), Settled: pglogrepl.LSN(settled), Part: p}
	}
	for _, c := range []struct {
		name            string
		base, now, want Carried
	}{
		{"nothing yet", at(100, 90, part(120, 3, 1)), Carried{Settled: 80}, at(100, 90, part(120, 3, 1))},
		{"settled by a keepalive", at(100, 90, Part{}), Carried{Settled: 180}, at(100, 100, Part{})},
		{"another transaction at the same place", at(100, 90, part(120, 3, 3)), Carried{Part: Part{XID: 9, Final: 120, Rows: 1}},
			at(100, 90, Part{XID: 9, Final: 120, Rows: 1})},
		{"behind", at(100, 90, Part{}), at(50, 40, part(60, 2, 0)), at(100, 90, Part{})},
		{"next part", at(100, 90, Part{}), Carried{Part: part(120, 2, 0)}, at(100, 90, part(120, 2, 0))},
		{"next begins where the last ended", at(100, 90, Part{}), Carried{Part: part(100, 2, 0)}, at(100, 90, part(100, 2, 0))},
		{"same part, not as far", at(100, 90, part(120, 3, 1)), Carried{Part: part(120, 2, 2)}, at(100, 90, part(120, 3, 2))},
		{"same part, further", at(100, 90, part(120, 3, 1)), Carried{Part: part(120, 9, 0)}, at(100, 90, part(120, 9, 1))},
		{"part is whole", at(100, 90, part(120, 3, 1)), at(130, 100, Part{}), at(130, 100, Part{})},
		{"one before the part is whole", at(100, 90, part(150, 3, 1)), at(130, 100, Part{}), at(130, 100, part(150, 3, 1))},
	} {
		if got := c.base.merge(c.now); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

func TestCarriedSettledRows(t *testing.T) {
	c := Carried{End: 100, XID: 7, Settled: 50, Unsettled: Part{XID: 6, Final: 60, Rows: 4}, Part: Part{XID: 8, Final: 100, Rows: 3, Settled: 2}}
	for _, check := range []struct {
		name  string
		xid   uint32
		final pglogrepl.LSN
		want  uint32
	}{
		{"settled whole", 5, 49, 1<<32 - 1},
		{"settled in part", 6, 60, 4},
		{"not settled", 7, 90, 0},
		{"another at that place", 9, 60, 0},
		{"resolved in part", 8, 100, 2},
	} {
		if got := c.SettledRows(check.xid, check.final); got != check.want {
			t.Errorf("%s: %d, want %d", check.name, got, check.want)
		}
	}
}

func TestCarriedTellsTransactionsApart(t *testing.T) {
	c := Carried{End: 100, XID: 7, Settled: 90, Part: Part{XID: 8, Final: 100, Rows: 3}}
	for _, check := range []struct {
		name      string
		got, want bool
	}{
		{"the server resumes below", c.Ahead(99), true},
		{"the server resumes at the position", c.Ahead(100), false},
		{"itself", c.Is(7, 100), true},
		{"another transaction at its end", c.Is(9, 100), false},
		{"itself with another end", c.Is(7, 101), false},
		{"a transaction below", c.Passed(99), false},
		{"a transaction that begins to commit where it ended", c.Passed(100), true},
		{"settled", c.SettledBefore(89), true},
		{"the first that is not settled", c.SettledBefore(90), false},
		{"the part", c.Part.Matches(8, 100), true},
		{"another transaction there", c.Part.Matches(9, 100), false},
		{"no part", Part{}.Matches(0, 0), false},
	} {
		if check.got != check.want {
			t.Errorf("%s: %v", check.name, check.got)
		}
	}
}
