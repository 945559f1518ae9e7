// Command walrelay publishes a transactional outbox from PostgreSQL to Kafka.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"walrelay/internal/config"
)

// Exit codes, as the help lists them.
const (
	exitOK      = 0
	exitFailure = 1 // something went wrong while it ran
	exitConfig  = 2 // flags or environment are wrong; nothing was opened
)

func main() {
	os.Exit(execute(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
}

// execute runs one command line and returns the exit code.
func execute(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	var problems config.Problems
	var usage *usageError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &problems):
		fmt.Fprintf(stderr, "walrelay: the configuration has %s; \"walrelay config\" lists every variable:\n", count(len(problems), "problem"))
		for _, p := range problems {
			fmt.Fprintf(stderr, "  %v\n", p)
		}
		return exitConfig
	case errors.As(err, &usage):
		fmt.Fprintf(stderr, "walrelay: %v\n", err)
		return exitConfig
	}
	fmt.Fprintf(stderr, "walrelay: %v\n", err)
	return exitFailure
}

// usageError is a command line that cannot be understood.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "walrelay",
		Short: "Publishes a transactional outbox from PostgreSQL to Kafka",
		Long: `walrelay follows the write-ahead log of an outbox table, so that an event is on Kafka about a
millisecond after its transaction commits. It is configured by environment variables only.

See it work, with nothing installed but this program:

  walrelay demo

On your own servers:

  export DATABASE_URL=postgres://me@localhost:5432/shop KAFKA_BROKERS=localhost:9092
  walrelay config --check       # every mistake at once
  walrelay migrate up           # outbox table and publication
  walrelay migrate role | psql "$DATABASE_URL"   # a role that may do what the relay does, no more
  walrelay run

Exit codes:
  0  done, or stopped by SIGTERM or SIGINT with nothing left over
  1  something failed while it ran; the message says what to type
  2  flags or environment are wrong; nothing was opened`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          known,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return &usageError{fmt.Errorf("%w\nsee: %s --help", err, cmd.CommandPath())}
	})
	root.AddCommand(runCommand(), demoCommand(), compareCommand(), tracedCommand(), migrateCommand(), configCommand(), healthcheckCommand(), versionCommand())
	return root
}

// known refuses words that are no command, with the nearest one that is.
func known(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	text := fmt.Sprintf("unknown command %q", cmd.CommandPath()+" "+args[0])
	if cmd.HasSubCommands() {
		cmd.SuggestionsMinimumDistance = 2
		if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
			text += ": did you mean " + strings.Join(near, " or ") + "?"
		}
	} else {
		text = fmt.Sprintf("%s takes no arguments, and got %q", cmd.CommandPath(), args[0])
	}
	return &usageError{fmt.Errorf("%s\nsee: %s --help", text, cmd.CommandPath())}
}

// count is "1 problem", "3 problems".
func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
