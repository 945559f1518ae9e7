// Package faults shows the promises on real servers while something goes wrong.
package faults

import (
	"os"
	"testing"

	"walrelay/test/integration/fixture"
)

func TestMain(m *testing.M) { os.Exit(fixture.Run(m)) }
