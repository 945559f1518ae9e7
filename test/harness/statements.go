package harness

import (
	"os"
	"strconv"
	"strings"
	"testing"
)

// Statement is one that a server has logged.
type Statement struct {
	At   float64 // seconds
	Text string
}

// Statements are those of an application, in order. The server logs them so with log_statement=all and
// log_line_prefix='%n %a|'.
func (s *Server) Statements(t testing.TB, application string) []Statement {
	t.Helper()
	text, err := os.ReadFile(s.Control().LogPath())
	if err != nil {
		t.Fatal(err)
	}
	var all []Statement
	for line := range strings.Lines(string(text)) {
		at, rest, found := strings.Cut(line, " "+application+"|LOG:  ")
		if !found || !strings.HasPrefix(rest, "statement:") && !strings.HasPrefix(rest, "execute ") {
			continue
		}
		seconds, err := strconv.ParseFloat(at, 64)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, Statement{seconds, rest})
	}
	return all
}
