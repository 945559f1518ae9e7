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
