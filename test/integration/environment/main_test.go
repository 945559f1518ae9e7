// Package environment shows the promises in surroundings that nobody chose for walrelay: settings of
// the database and the role, locks, publications and tables of other people, networks that swallow
// what they are given, servers that are replaced.
package environment

import (
	"fmt"
	"os"
	"slices"
	"testing"

	"walrelay/test/harness"
	"walrelay/test/integration/fixture"
)

func TestMain(m *testing.M) { os.Exit(fixture.Run(m)) }

// oldestAndNewest runs the test on the two ends of what this machine has. What is tested here differs
// by the age of the server, if at all; the package faults has the tests of every version.
func oldestAndNewest(t *testing.T, test func(t *testing.T, s *harness.Server)) {
	t.Helper()
	t.Parallel()
	majors, err := harness.Majors(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(majors) == 0 {
		harness.Skip(t, t.Name(), "no PostgreSQL is installed")
	}
	for _, major := range slices.Compact([]int{majors[0], majors[len(majors)-1]}) {
		t.Run(fmt.Sprintf("postgres-%d", major), func(t *testing.T) {
			t.Parallel()
			test(t, harness.Postgres(t, harness.Major(major)))
		})
	}
}
