package main

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
)

// mutant is one deliberate bug: a unified diff with a header before it.
//
//	Bug: what is wrong, in a sentence.
//	Breaks: the promise of DESIGN.md section 1.
//	Catch: ./package TestName/subtest -flag=value
//
//	Why somebody would write it so; free text.
//
//	--- a/file
//	+++ b/file
//
// A mutant has one Catch or more, and each must fail.
type mutant struct {
	name    string // of the file, without .patch
	bug     string
	breaks  string
	catches []catch
	patch   []byte
	files   []string // that the patch changes, from the root
}

// catch is a test that must notice a bug.
type catch struct {
	dir  string // of the package, from the root: ./checkpoint
	name string // TestName/subtest
	args []string
}

func (c catch) String() string { return strings.Join(append([]string{c.dir, c.name}, c.args...), " ") }

// pattern is the name as -run wants it.
func (c catch) pattern() string {
	parts := strings.Split(c.name, "/")
	for i, p := range parts {
		parts[i] = "^" + p + "$"
	}
	return strings.Join(parts, "/")
}

// promises are the names of DESIGN.md section 1.
var promises = []string{
	"delivered", "no early ack", "ordered", "bounded duplicates", "faithful", "progress", "bounded memory",
	"nothing dropped", "harmless",
}

// catalogue reads every patch, in the order of their names.
func catalogue(dir fs.FS) ([]mutant, error) {
	names, err := fs.Glob(dir, "*.patch")
	if err != nil {
		return nil, err
	}
	var all []mutant
	var errs []error
	for _, name := range names {
		b, err := fs.ReadFile(dir, name)
		if err != nil {
			return nil, err
		}
		m, err := parse(b)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
		}
		m.name = strings.TrimSuffix(path.Base(name), ".patch")
		all = append(all, m)
	}
	return all, errors.Join(errs...)
}

func parse(b []byte) (mutant, error) {
	m := mutant{patch: b}
	header := true
	for line := range strings.Lines(string(b)) {
		line = strings.TrimRight(line, "\n")
		if file, ok := strings.CutPrefix(line, "+++ b/"); ok {
			m.files = append(m.files, file)
		}
		header = header && !strings.HasPrefix(line, "--- ")
		key, value, ok := strings.Cut(line, ": ")
		if !header || !ok {
			continue
		}
		switch key {
		case "Bug":
			m.bug = value
		case "Breaks":
			m.breaks = value
		case "Catch":
			words := strings.Fields(value)
			if len(words) < 2 {
				return m, fmt.Errorf("catch %q: want a package and a test", value)
			}
			m.catches = append(m.catches, catch{dir: words[0], name: words[1], args: words[2:]})
		}
	}
	switch {
	case m.bug == "":
		return m, errors.New("the header has no Bug")
	case m.breaks == "":
		return m, errors.New("the header has no Breaks")
	case len(m.catches) == 0:
		return m, errors.New("the header has no Catch")
	case len(m.files) == 0:
		return m, errors.New("the patch changes no file")
	}
	return m, nil
}
