// Bench measures walrelay on this machine, in one run: how fast it drains a backlog beside a reader
// that does nothing, what that costs, how much memory it takes at its worst, and how long an event is
// on its way. Absolute numbers belong to the machine; the ratios are what the design promises.
//
//	go run ./test/bench                     everything, 500,000 rows: about twelve minutes
//	go run ./test/bench --only drain --rows 20000
//	go run ./test/bench --only drain --profile .cache/profile
//
// PostgreSQL (fsync on) and Kafka are started for it and thrown away. walrelay is the built binary, a
// process of its own; so is the null reader.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

// options are the flags.
type options struct {
	rows    int
	last    time.Duration
	only    []string
	kafka   string
	json    string
	md      string
	profile string
}

// section is one part of the run.
type section struct {
	name string
	what string
	run  func(*bench, context.Context) error
}

func sections() []section {
	return []section{
		{"drain", "a backlog, TCP and unix socket, keep, mark and delete", (*bench).drain},
		{"big", "one transaction of all rows", (*bench).big},
		{"large", "rows of 900 kB", (*bench).large},
		{"outage", "the broker is away under load", (*bench).outage},
		{"latency", "commit to consumer, beside the floor", (*bench).latency},
		{"idle", "SQL statements of an idle relay", (*bench).idle},
		{"polling", "RELAY_MODE=polling: a backlog, latency with NOTIFY and without, idle", (*bench).polling},
	}
}

func main() {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case nullCommand:
			exit(nullReader(os.Args[2:], os.Stdout))
		case profileCommand:
			exit(profiledRelay(os.Args[2:]))
		}
	}
	o, err := parseFlags(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(2)
	}
	exit(run(o, os.Stdout))
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func parseFlags(args []string) (options, error) {
	var o options
	var names, help []string
	for _, s := range sections() {
		names = append(names, s.name)
		help = append(help, fmt.Sprintf("  %-8s %s", s.name, s.what))
	}
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.IntVar(&o.rows, "rows", 500_000, "rows of a backlog")
	f.DurationVar(&o.last, "for", 30*time.Second, "length of an outage and of each measurement of latency")
	only := f.String("only", strings.Join(names, ","), "sections to run")
	f.StringVar(&o.kafka, "kafka", "real", "real: Apache Kafka, where Java can run it; fake: kfake")
	f.StringVar(&o.json, "json", "", "`file` that all results are written to as JSON")
	f.StringVar(&o.md, "md", "", "Markdown `file` whose text between the two marks is replaced by the tables")
	f.StringVar(&o.profile, "profile", "", "`folder` for CPU profiles of the relay in section drain; its figures are a little worse then")
	f.Usage = func() {
		fmt.Fprintln(f.Output(), "usage: go run ./test/bench [flags]\n\nsections:\n"+strings.Join(help, "\n")+"\n\nflags:")
		f.PrintDefaults()
	}
	if err := f.Parse(args); err != nil {
		return o, err
	}
	o.only = strings.Split(*only, ",")
	for _, name := range o.only {
		if !slices.Contains(names, name) {
			return o, fmt.Errorf("--only: there is no section %q: use %s", name, strings.Join(names, ", "))
		}
	}
	if o.rows < 1000 || o.last < time.Second || o.kafka != "real" && o.kafka != "fake" || f.NArg() > 0 {
		return o, errors.New("use --rows from 1000, --for from 1s, --kafka real or fake, and no other arguments")
	}
	return o, nil
}

func run(o options, out io.Writer) (err error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	b := &bench{options: o, out: out, began: time.Now()}
	defer func() { err = errors.Join(err, b.close()) }()
	if err := b.open(ctx); err != nil {
		return err
	}
	if err := b.warm(ctx); err != nil {
		return err
	}
	var failed []error
	for _, s := range sections() {
		if !slices.Contains(o.only, s.name) {
			continue
		}
		b.say("== %s: %s", s.name, s.what)
		if err := s.run(b, ctx); err != nil {
			// The other sections are worth having all the same.
			b.say("%s failed: %v", s.name, err)
			failed = append(failed, fmt.Errorf("%s: %w", s.name, err))
		}
		if ctx.Err() != nil {
			break
		}
	}
	b.result.Seconds = time.Since(b.began).Seconds()
	return errors.Join(append(failed, b.publish())...)
}

// publish prints the result and writes the files that were asked for.
func (b *bench) publish() error {
	fmt.Fprint(b.out, "\n", b.result.text())
	var errs []error
	if b.json != "" {
		errs = append(errs, b.result.writeJSON(b.json))
	}
	if b.md != "" {
		errs = append(errs, b.result.writeMarkdown(b.md))
	}
	return errors.Join(errs...)
}

// say prints a line of progress with the time since the start.
func (b *bench) say(format string, args ...any) {
	fmt.Fprintf(b.out, "%5.0fs  %s\n", time.Since(b.began).Seconds(), fmt.Sprintf(format, args...))
}
