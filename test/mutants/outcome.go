package main

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

const (
	testTimeout = 90 * time.Second // of one test; the slowest takes ten seconds when nothing is wrong
	killAfter   = testTimeout + 10*time.Second
)

// build makes the test binary of a package. That it must succeed tells a bug from a patch that has gone
// stale in a way that git cannot see.
func (t *tree) build(ctx context.Context, dir string) (binary string, err error) {
	binary = filepath.Join(t.bin, strings.ReplaceAll(strings.TrimPrefix(dir, "./"), "/", "_")+".test")
	cmd := exec.CommandContext(ctx, "go", "test", "-c", "-o", binary, dir)
	cmd.Dir = t.dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s does not build: %w\n%s", dir, err, out)
	}
	return binary, nil
}

// outcome is what has become of one test.
type outcome struct {
	failed bool
	empty  bool // nothing was run, or all of it skipped
	output string
}

func (t *tree) test(ctx context.Context, binary string, c catch) outcome {
	ctx, cancel := context.WithTimeout(ctx, killAfter)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, append([]string{
		"-test.v", "-test.failfast", "-test.timeout=" + testTimeout.String(), "-test.run=" + c.pattern()}, c.args...)...)
	cmd.Dir = filepath.Join(t.dir, c.dir)
	out, err := cmd.CombinedOutput()
	o := outcome{failed: err != nil, output: string(out)}
	o.empty = strings.Contains(o.output, "no tests to run") || strings.Contains(o.output, "--- SKIP: ")
	return o
}

var (
	failedTest = regexp.MustCompile(`(?m)^ *--- FAIL: (\S+)`)
	ranTest    = regexp.MustCompile(`(?m)^=== (?:RUN|CONT)\s+(\S+)`)
	broken     = regexp.MustCompile(`promise "([^"]+)"(?: is)? broken`)
	repeat     = regexp.MustCompile(`-sim\.seed=(\d+)`)
)

// how says in a few words which test has failed, which promise it named, and which seed repeats it.
func (o outcome) how() string {
	name := "?"
	for _, m := range failedTest.FindAllStringSubmatch(o.output, -1) {
		if name == "?" || strings.HasPrefix(m[1], name+"/") { // a subtest, listed behind its parent
			name = m[1]
		}
	}
	var said []string
	if name == "?" {
		if ran := ranTest.FindAllStringSubmatch(o.output, -1); len(ran) > 0 {
			name = ran[len(ran)-1][1]
		}
		said = append(said, "it did not come to its end")
	}
	var promises []string
	for _, m := range broken.FindAllStringSubmatch(o.output, -1) {
		if p := fmt.Sprintf("%q", m[1]); !slices.Contains(promises, p) {
			promises = append(promises, p)
		}
	}
	if len(promises) > 0 {
		said = append(said, strings.Join(promises, ", ")+" broken")
	}
	if m := repeat.FindStringSubmatch(o.output); m != nil {
		said = append(said, "seed "+m[1])
	}
	if len(said) == 0 {
		return name
	}
	return name + " (" + strings.Join(said, ", ") + ")"
}
