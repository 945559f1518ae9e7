// Up starts PostgreSQL, one server per major, and Kafka, runs a command that finds them in its
// environment (package harness), stops them, and lists what this machine could not run and why.
//
//	go run ./test/harness/cmd/up -- go test ./...
//
// It exits as the command did.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"walrelay/internal/localdev"
	"walrelay/test/harness"
)

func main() {
	kafka := flag.Bool("kafka", true, "start Kafka, unless "+harness.EnvBrokers+" names one")
	postgres := flag.Bool("postgres", true, "start PostgreSQL: the majors of "+harness.EnvVersions+", else all that can be had")
	offline := flag.Bool("offline", false, "fetch nothing")
	flag.Usage = func() {
		fmt.Fprintf(os.Stderr, "usage: up [flags] -- command [argument ...]\n")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() == 0 {
		flag.Usage()
		os.Exit(2)
	}
	code, err := run(*postgres, *kafka, !*offline, flag.Args())
	if err != nil {
		say("%v", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

func say(format string, args ...any) { fmt.Fprintf(os.Stderr, "harness: "+format+"\n", args...) }

// servers are what was started, to be stopped in any case.
type servers struct {
	sync.Mutex
	postgres []*localdev.Server
	kafka    *harness.Cluster
}

func run(postgres, kafka, fetch bool, command []string) (code int, err error) {
	// The first signal stops the command (a terminal sends Ctrl-C to it as well), the end of which
	// stops the servers.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	work, err := localdev.NewFolder("", "up")
	if err != nil {
		return 1, err
	}
	defer work.Remove()
	notRun := filepath.Join(work.Path, "not-run")
	os.Setenv(harness.EnvNotRun, notRun)
	if fetch {
		os.Setenv(harness.EnvFetch, "1")
	}

	var s servers
	defer func() {
		err = errors.Join(err, s.stop(code != 0))
		list(notRun)
	}()
	if err := s.start(ctx, postgres, kafka, fetch); err != nil {
		return 1, err
	}
	return execute(ctx, command)
}

// start starts two at a time, which is as many as a small machine has cores. A server that cannot
// be had is noted; one that is there and does not start is an error.
func (s *servers) start(ctx context.Context, postgres, kafka, fetch bool) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(2)
	if kafka && os.Getenv(harness.EnvBrokers) == "" {
		group.Go(func() error { return s.startKafka(ctx, fetch) })
	}
	if postgres {
		majors, err := harness.Majors(ctx)
		if err != nil {
			return err
		}
		if len(majors) == 0 {
			harness.Note("tests with PostgreSQL", "none is installed and nothing may be fetched")
		}
		for _, major := range majors {
			group.Go(func() error { return s.startPostgres(ctx, major, fetch) })
		}
	}
	if err := group.Wait(); err != nil {
		return err
	}
	var endpoints harness.Endpoints
	for _, server := range s.postgres {
		endpoints = append(endpoints, harness.Endpoint{
			Major: server.Binaries().Major, TCP: server.URL("postgres"), Socket: server.SocketURL("postgres"),
		})
		say("%s on port %d", server.Binaries(), server.Port())
	}
	os.Setenv(harness.EnvPostgres, endpoints.String())
	if s.kafka != nil {
		os.Setenv(harness.EnvBrokers, s.kafka.Brokers())
		os.Setenv(harness.EnvKafka, s.kafka.What)
		say("%s", s.kafka)
	}
	return nil
}

func (s *servers) startKafka(ctx context.Context, fetch bool) error {
	cluster, why, err := harness.StartKafka(ctx, fetch, func(line string) { say("%s", line) })
	if err != nil {
		return err
	}
	if !cluster.Real {
		harness.Note("tests with Apache Kafka", "ran with kfake: "+why)
	}
	s.Lock()
	defer s.Unlock()
	s.kafka = cluster
	return nil
}

func (s *servers) startPostgres(ctx context.Context, major int, fetch bool) error {
	cfg := localdev.Config{Bin: os.Getenv("PG_BIN"), Repository: os.Getenv("PG_REPOSITORY"), Cache: os.Getenv("WALRELAY_CACHE")}
	binaries, err := localdev.Find(ctx, cfg, major)
	if errors.Is(err, localdev.ErrNotFound) && fetch {
		binaries, err = localdev.Ensure(ctx, cfg, major, func(p localdev.Progress) {
			if p.Elapsed == 0 || p.Done {
				say("%s", p)
			}
		})
	}
	if err != nil {
		harness.Note(fmt.Sprintf("tests on PostgreSQL %d", major), err.Error())
		return ctx.Err()
	}
	server, err := localdev.New(ctx, localdev.Options{Binaries: binaries, Settings: harness.Settings()})
	if err != nil {
		return err
	}
	s.Lock()
	defer s.Unlock()
	s.postgres = append(s.postgres, server)
	// The one that a test gets which does not care comes first: the one that is found first.
	slices.SortFunc(s.postgres, func(a, b *localdev.Server) int { return rank(cfg, a) - rank(cfg, b) })
	return nil
}

// rank is the place of the server's binaries in the order of preference.
func rank(cfg localdev.Config, s *localdev.Server) int {
	return slices.Index(localdev.Available(context.Background(), cfg), s.Binaries())
}

func execute(ctx context.Context, command []string) (int, error) {
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 30 * time.Second // then it is killed
	err := cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() > 0 {
		return exit.ExitCode(), nil
	}
	if err != nil {
		return 1, fmt.Errorf("%s: %w", strings.Join(command, " "), err)
	}
	return 0, nil
}

func (s *servers) stop(failed bool) error {
	s.Lock()
	defer s.Unlock()
	var errs []error
	for _, server := range s.postgres {
		if failed {
			say("log kept: %s", harness.KeepLog(server.LogPath(), fmt.Sprintf("postgres-%d", server.Binaries().Major)))
		}
		errs = append(errs, server.Close())
	}
	if s.kafka != nil {
		if failed && s.kafka.LogPath() != "" {
			say("log kept: %s", harness.KeepLog(s.kafka.LogPath(), "kafka"))
		}
		errs = append(errs, s.kafka.Close())
	}
	return errors.Join(errs...)
}

// list prints what could not run, each line once.
func list(path string) {
	text, err := os.ReadFile(path)
	if err != nil {
		return // nobody wrote to it
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	slices.Sort(lines)
	lines = slices.Compact(lines)
	fmt.Fprintf(os.Stderr, "\n======== NOT RUN ON THIS MACHINE (%d) ========\n", len(lines))
	for _, line := range lines {
		fmt.Fprintln(os.Stderr, "  "+line)
	}
	fmt.Fprintln(os.Stderr)
}
