package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"walrelay/internal/config"
)

func configCommand() *cobra.Command {
	var check, asJSON bool
	cmd := &cobra.Command{
		Use:   "config",
		Short: "List every environment variable with default and meaning",
		Long: `Lists every environment variable that walrelay reads, with its default and its meaning.

With --check it reads the environment as "walrelay run" would, opens nothing, and reports every
problem at once. Secrets are never printed.`,
		Example: `  walrelay config
  walrelay config --json | jq -r '.[].name'
  DATABASE_URL=postgres://localhost/shop KAFKA_BROKERS=localhost:9092 walrelay config --check`,
		Args: known,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case check && asJSON:
				return &usageError{errors.New("--check and --json do not go together")}
			case check:
				return checkConfig(cmd.OutOrStdout(), cmd.ErrOrStderr())
			case asJSON:
				return listJSON(cmd.OutOrStdout())
			}
			return listSettings(cmd.OutOrStdout())
		},
	}
	cmd.Flags().BoolVar(&check, "check", false, "read the environment and report every problem (exit code 2)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "list as JSON")
	return cmd
}

func checkConfig(stdout, stderr io.Writer) error {
	cfg, warnings, err := config.Load(os.Environ())
	for _, w := range warnings {
		fmt.Fprintln(stderr, "warning:", w)
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(stdout, "ok: %s of %s to %s\n", cfg.Outbox.Table, cfg.Database.Redacted(), strings.Join(cfg.Kafka.Brokers, ","))
	return err
}

func listSettings(w io.Writer) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	group := ""
	for _, s := range config.Settings() {
		if s.Group != group {
			if group != "" {
				fmt.Fprintln(table)
			}
			group = s.Group
			fmt.Fprintln(table, strings.ToUpper(group))
		}
		def := s.Default
		if s.Required {
			def = "(required)"
		}
		doc := s.Doc
		if s.Secret {
			doc += " Also as " + s.Name + "_FILE, the path of a file."
		}
		fmt.Fprintf(table, "%s\t%s\t%s\n", s.Name, def, doc)
	}
	return table.Flush()
}

func listJSON(w io.Writer) error {
	type setting struct {
		Name     string `json:"name"`
		Group    string `json:"group"`
		Default  string `json:"default"`
		Required bool   `json:"required"`
		Secret   bool   `json:"secret"`
		Meaning  string `json:"meaning"`
	}
	var all []setting
	for _, s := range config.Settings() {
		all = append(all, setting{s.Name, strings.ToLower(s.Group), s.Default, s.Required, s.Secret, s.Doc})
	}
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(all)
}
