package checkpoint

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pglogrepl"
)

// story runs a history that is written down in words, one step a line; # begins a comment.
//
//	new session of 4 rows [keep] [from carried] start 0/10
//	begin 7 final 0/100 | commit 0/110 | keepalive 0/200
//	row a | rows 5 of b | repeat a | hold a | skip 3 | release
//	ack a | ack again a | settle a
//	expect confirmable 0/110 | carried 7 0/110 | part 8 0/200 rows 3 settled 1 | no part | settled 0/110
//	expect settled rows 3 of 7 0/100 | room 3 | in flight 2 | pending a b | nothing pending
type story struct {
	t       *testing.T
	tracker *Tracker
	tokens  map[string]uint64
	names   map[uint64]string
}

func runStory(t *testing.T, text string) {
	t.Helper()
	s := &story{t: t}
	for n, line := range strings.Split(text, "\n") {
		line, _, _ = strings.Cut(line, "#")
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		if err := s.step(line); err != nil {
			t.Fatalf("line %d: %s: %v", n, line, err)
		}
	}
}

// match reads a line by a pattern of words, where %d, %s and %x stand for a number, a word and an LSN.
func match(line, pattern string, args ...any) bool {
	n, err := fmt.Sscanf(line, pattern, args...)
	return err == nil && n == len(args) && len(strings.Fields(line)) == len(strings.Fields(pattern))
}

type lsnArg struct{ lsn *pglogrepl.LSN }

func (a lsnArg) Scan(state fmt.ScanState, _ rune) error {
	word, err := state.Token(true, nil)
	if err != nil {
		return err
	}
	*a.lsn, err = pglogrepl.ParseLSN(string(word))
	return err
}

func (s *story) step(line string) error {
	var n int
	var xid uint32
	var lsn pglogrepl.LSN
	var name string
	switch {
	case strings.HasPrefix(line, "new session"):
		return s.session(line)
	case strings.HasPrefix(line, "expect "):
		return s.expect(strings.TrimPrefix(line, "expect "))
	case match(line, "begin %d final %v", &xid, lsnArg{&lsn}):
		return s.tracker.Open(xid, lsn)
	case match(line, "commit %v", lsnArg{&lsn}):
		return s.tracker.Close(lsn)
	case match(line, "keepalive %v", lsnArg{&lsn}):
		s.tracker.Idle(lsn)
	case match(line, "skip %d", &n):
		s.tracker.Skip(n)
	case match(line, "rows %d of %s", &n, &name):
		for i := range n {
			s.add(fmt.Sprint(name, i), func(row Row) uint64 { return s.tracker.Add(row, 10) })
		}
	case match(line, "row %s", &name):
		s.add(name, func(row Row) uint64 { return s.tracker.Add(row, 10) })
	case match(line, "repeat %s", &name):
		s.add(name, s.tracker.AddResolved)
	case match(line, "hold %s", &name):
		s.add(name, s.tracker.AddHeld)
	case line == "hold":
		s.tracker.Hold()
	case line == "release":
		s.tracker.ReleaseHeld()
	case match(line, "ack again %s", &name):
		if err := s.tracker.Done(s.tokens[name]); !errors.Is(err, ErrToken) {
			return fmt.Errorf("was taken: %v", err)
		}
	case match(line, "ack %s", &name):
		return s.tracker.Done(s.tokens[name])
	case match(line, "settle %s", &name):
		return s.tracker.Settled(s.tokens[name])
	default:
		return errors.New("is no step")
	}
	return nil
}

func (s *story) session(line string) error {
	o := Options{Settles: !strings.Contains(line, " keep")}
	if strings.Contains(line, " from carried") {
		o.Carried = s.tracker.Carried()
	}
	line = strings.NewReplacer(" keep", "", " from carried", "").Replace(line)
	if !match(line, "new session of %d rows start %v", &o.Rows, lsnArg{&o.Start}) {
		return errors.New("is no session")
	}
	s.tracker, s.tokens, s.names = NewTracker(o), map[string]uint64{}, map[uint64]string{}
	return nil
}

func (s *story) add(name string, add func(Row) uint64) {
	token := add(Row{RowID: int64(len(s.tokens))})
	s.tokens[name], s.names[token] = token, name
}

func (s *story) expect(what string) error {
	var n int
	var xid uint32
	var lsn pglogrepl.LSN
	var part Part
	carried := s.tracker.Carried()
	got := fmt.Sprintf("%+v", carried)
	ok := false
	switch {
	case match(what, "confirmable %v", lsnArg{&lsn}):
		got = s.tracker.Confirmable().String()
		ok = s.tracker.Confirmable() == lsn
	case match(what, "carried %d %v", &xid, lsnArg{&lsn}):
		ok = carried.Is(xid, lsn)
	case match(what, "part %d %v rows %d settled %d", &part.XID, lsnArg{&part.Final}, &part.Rows, &part.Settled):
		ok = carried.Part == part
	case what == "no part":
		ok = carried.Part == Part{}
	case match(what, "settled %v", lsnArg{&lsn}):
		ok = carried.Settled == lsn
	case match(what, "settled rows %d of %d %v", &n, &xid, lsnArg{&lsn}):
		rows := carried.SettledRows(xid, lsn)
		got, ok = fmt.Sprint(rows), rows == uint32(n)
	case match(what, "room %d", &n):
		rows, _ := s.tracker.Room()
		got, ok = fmt.Sprint(rows), rows == n
	case match(what, "in flight %d", &n):
		got, ok = fmt.Sprint(s.tracker.InFlight()), s.tracker.InFlight() == n
	case strings.HasPrefix(what, "pending "), what == "nothing pending":
		var names []string
		for _, p := range s.tracker.Pending(nil, 100) {
			names = append(names, s.names[p.Token])
		}
		got, ok = fmt.Sprint(names), what == "nothing pending" && names == nil ||
			slices.Equal(names, strings.Fields(what)[1:])
	default:
		return errors.New("is no expectation")
	}
	if !ok {
		return errors.New("got " + got)
	}
	return nil
}
