package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// may lists, for each package, what it may import of this module. Imports point one way:
// cmd → relay → {replication, polling, sink} → {decoder, router, checkpoint} → outbox. internal/postgres and
// internal/source are what the two sources share.
var may = map[string][]string{
	"outbox":      {},
	"decoder":     {"outbox"},
	"router":      {"outbox"},
	"checkpoint":  {"outbox"},
	"migrations":  {"outbox", "decoder"},
	"replication": {"outbox", "decoder", "checkpoint", "internal/postgres", "internal/source"}, // a source never imports the sink
	"polling":     {"outbox", "decoder", "checkpoint", "internal/postgres", "internal/source", "internal/size"},
	"sink":        {"outbox", "router"},
	"relay":       {"outbox", "decoder", "router", "checkpoint", "replication", "polling", "sink", "internal/postgres", "internal/source", "internal/size"},

	"internal/postgres": {"outbox", "decoder", "checkpoint"},
	"internal/source":   {"outbox", "checkpoint"},
	"internal/size":     {},
}

// pure packages have no I/O, clock, goroutine or logger; these would be the way to it.
var impure = []string{"net", "net/http", "os", "log", "log/slog", "os/exec", "sync/errgroup", "context"}

func TestImportsPointOneWay(t *testing.T) {
	for _, p := range listPackages(t) {
		name := strings.TrimPrefix(p.ImportPath, "walrelay/")
		allowed, ruled := may[name]
		for _, path := range p.Imports {
			imported, ours := strings.CutPrefix(path, "walrelay/")
			if name == "decoder" || name == "router" {
				if slices.Contains(impure, path) {
					t.Errorf("%s is pure and imports %s", name, path)
				}
			}
			switch {
			case !ours:
			case strings.HasPrefix(imported, "test/") && !strings.HasPrefix(name, "test/"):
				t.Errorf("%s imports %s: tests stay outside of the program", name, imported)
			case ruled && !slices.Contains(allowed, imported):
				t.Errorf("%s imports %s; it may import %v", name, imported, allowed)
			case strings.HasPrefix(name, "internal/localdev") && !strings.HasPrefix(imported, "internal/localdev"):
				t.Errorf("%s imports %s: it knows nothing of the relay", name, imported)
			}
		}
		if !ruled && !strings.HasPrefix(name, "internal") && !strings.HasPrefix(name, "cmd/") && !strings.HasPrefix(name, "test/") {
			t.Errorf("package %s is in no layer: add it to the table of this test and to the design", name)
		}
	}
}

type goPackage struct {
	ImportPath string
	Imports    []string
}

func listPackages(t *testing.T) []goPackage {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Imports", "walrelay/...")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.String())
	}
	var all []goPackage
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p goPackage
		err := dec.Decode(&p)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	if len(all) < len(may) {
		t.Fatalf("only %d packages are listed", len(all))
	}
	return all
}
