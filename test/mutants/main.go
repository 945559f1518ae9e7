// Command mutants proves that the tests bite. It copies the working tree, plants one deliberate bug at a
// time in the copy, runs the tests that must notice it, and says which of them did.
//
// The bugs are the files of patches/. The tests that they name must pass in the copy before anything is
// planted. A bug that no test notices, a patch that does not apply to today's tree, and one that does not
// build all fail the run.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"
)

func main() {
	only := flag.String("only", "", "regular expression: run the mutants whose names match")
	list := flag.Bool("list", false, "print the catalogue and run nothing")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *only, *list); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, only string, list bool) error {
	pattern, err := regexp.Compile(only)
	if err != nil {
		return fmt.Errorf("-only: %w", err)
	}
	root, err := moduleRoot(ctx)
	if err != nil {
		return err
	}
	all, err := catalogue(os.DirFS(filepath.Join(root, "test", "mutants", "patches")))
	if err != nil {
		return err
	}
	var mutants []mutant
	for _, m := range all {
		if pattern.MatchString(m.name) {
			mutants = append(mutants, m)
		}
	}
	if len(mutants) == 0 {
		return fmt.Errorf("no mutant is called %q", only)
	}
	if list {
		for _, m := range mutants {
			fmt.Printf("%-30s breaks %q: %s\n", m.name, m.breaks, m.bug)
		}
		return nil
	}
	began := time.Now()
	tree, err := copyTree(ctx, root, filepath.Join(root, ".cache", "mutants"))
	if err != nil {
		return err
	}
	if err := sound(ctx, tree, mutants); err != nil {
		return err
	}
	var bad []string
	for _, m := range mutants {
		fmt.Printf("%-30s ", m.name)
		line, err := tree.try(ctx, m)
		if ctx.Err() != nil {
			return errors.New("interrupted")
		}
		if err != nil {
			bad = append(bad, m.name)
			line = err.Error()
		}
		fmt.Println(line)
	}
	fmt.Printf("\n%d mutants, %d caught, in %v\n", len(mutants), len(mutants)-len(bad), time.Since(began).Round(time.Second))
	if len(bad) > 0 {
		return fmt.Errorf("not caught: %s (what the tests printed is in %s)", strings.Join(bad, ", "), tree.logs)
	}
	return nil
}

// sound runs every test that is named, before anything is planted: one that fails by itself proves nothing.
func sound(ctx context.Context, tree *tree, mutants []mutant) error {
	began := time.Now()
	seen := make(map[string]bool)
	for _, m := range mutants {
		for _, c := range m.catches {
			if seen[c.String()] {
				continue
			}
			seen[c.String()] = true
			binary, err := tree.build(ctx, c.dir)
			if err != nil {
				return err
			}
			o := tree.test(ctx, binary, c)
			if ctx.Err() != nil {
				return errors.New("interrupted")
			}
			if o.failed || o.empty {
				return fmt.Errorf("%s does not pass without a bug planted:\n%s", c, o.output)
			}
		}
	}
	fmt.Printf("%d tests pass without a bug planted (%v)\n\n", len(seen), time.Since(began).Round(time.Second))
	return nil
}

// try plants one bug, runs the tests that must notice it, and takes it out again. All of them must.
func (t *tree) try(ctx context.Context, m mutant) (line string, err error) {
	began := time.Now()
	if err := t.plant(ctx, m); err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, t.restore(m)) }()
	var by []string
	var log strings.Builder
	defer func() {
		err = errors.Join(err, os.WriteFile(filepath.Join(t.logs, m.name+".log"), []byte(log.String()), 0o644))
	}()
	for _, c := range m.catches {
		binary, err := t.build(ctx, c.dir)
		if err != nil {
			return "", fmt.Errorf("NOT CAUGHT: %w", err)
		}
		o := t.test(ctx, binary, c)
		fmt.Fprintf(&log, "%s\n%s\n", c, o.output)
		if !o.failed {
			return "", fmt.Errorf("NOT CAUGHT by %s", c)
		}
		by = append(by, c.dir+" "+o.how())
	}
	return fmt.Sprintf("caught in %4.1fs by %s", time.Since(began).Seconds(), strings.Join(by, " and ")), nil
}
