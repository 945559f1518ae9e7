package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Every patch applies to today's tree, breaks a promise that there is, and names tests that there are.
func TestCatalogue(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	all, err := catalogue(os.DirFS("patches"))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range all {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			if !slices.Contains(promises, m.breaks) {
				t.Errorf("%q is no promise of DESIGN.md", m.breaks)
			}
			for _, c := range m.catches {
				if !hasTest(t, filepath.Join(root, c.dir), c.name) {
					t.Errorf("%s: there is no such test", c)
				}
			}
			if err := apply(t.Context(), root, m.patch, "--check"); err != nil {
				t.Errorf("the patch is stale, make it anew: %v", err)
			}
		})
	}
}

func hasTest(t *testing.T, dir, name string) bool {
	t.Helper()
	name, _, _ = strings.Cut(name, "/")
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(b), "func "+name+"(") {
			return true
		}
	}
	return false
}

func TestHeader(t *testing.T) {
	const diff = "--- a/x.go\n+++ b/x.go\n@@ -1 +1 @@\n-a\n+Bug: not of the header\n"
	m, err := parse([]byte("Bug: a b\nBreaks: ordered\nCatch: ./x TestX/a -y=1\nCatch: ./z TestZ\n\nWhy: so.\n\n" + diff))
	if err != nil || m.bug != "a b" || m.breaks != "ordered" || !slices.Equal(m.files, []string{"x.go"}) {
		t.Errorf("%+v, %v", m, err)
	}
	if len(m.catches) != 2 || m.catches[0].String() != "./x TestX/a -y=1" || m.catches[0].pattern() != "^TestX$/^a$" {
		t.Errorf("catches %v", m.catches)
	}
	for _, bad := range []string{
		"Breaks: ordered\nCatch: ./x TestX\n" + diff,
		"Bug: a\nCatch: ./x TestX\n" + diff,
		"Bug: a\nBreaks: ordered\n" + diff,
		"Bug: a\nBreaks: ordered\nCatch: ./x\n" + diff,
		"Bug: a\nBreaks: ordered\nCatch: ./x TestX\n",
	} {
		if _, err := parse([]byte(bad)); err == nil {
			t.Errorf("no error for %q", bad)
		}
	}
}

func TestHow(t *testing.T) {
	for _, c := range []struct{ output, want string }{
		{"=== RUN   TestA\n--- FAIL: TestA (0.1s)\n    --- FAIL: TestA/b (0.1s)\n--- FAIL: TestC (0s)\n", "TestA/b"},
		{"=== RUN   TestA\n    x.go:1: promise \"ordered\" is broken at 3s: x\n to repeat it: go test -sim.seed=42\n--- FAIL: TestA (0.1s)\n",
			`TestA ("ordered" broken, seed 42)`},
		{"=== RUN   TestA\npanic: x\n", "TestA (it did not come to its end)"},
	} {
		if got := (outcome{failed: true, output: c.output}).how(); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}
