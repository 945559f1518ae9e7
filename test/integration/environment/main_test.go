// Package environment shows the promises in surroundings that nobody chose for walrelay: settings of
// the database and the role, locks, publications and tables of other people, networks that swallow
// what they are given, servers that are replaced.
package environment

import (
	"os"
	"testing"

	"walrelay/test/integration/fixture"
)

func TestMain(m *testing.M) { os.Exit(fixture.Run(m)) }

// reconnects is the number of sessions that have ended and were followed by another.
func reconnects(t *testing.T, r *fixture.Relay) float64 {
	t.Helper()
	families, err := r.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for _, f := range families {
		if f.GetName() == "walrelay_reconnects_total" { // absent until the first one
			for _, m := range f.GetMetric() {
				sum += m.GetCounter().GetValue()
			}
		}
	}
	return sum
}
