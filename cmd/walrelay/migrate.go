package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/spf13/cobra"

	"walrelay/internal/config"
	"walrelay/migrations"
	"walrelay/outbox"
	"walrelay/relay"
)

// connectTimeout bounds the wait for a database that does not answer.
const connectTimeout = 10 * time.Second

func migrateCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Make the outbox table and its publication: up, status, print, role",
		Long: `Makes what walrelay needs in PostgreSQL: the outbox table with its index, and the publication. The names
follow OUTBOX_TABLE, OUTBOX_COLUMN_* and REPLICATION_PUBLICATION.

Run it as a user who may create tables in the schema and publications in the database; the relay
itself needs much less ("walrelay migrate role"). A table that is there already is never changed.`,
		Example: `  walrelay migrate up
  walrelay migrate up --payload bytea
  walrelay migrate up --notify               # for RELAY_MODE=polling: commits wake the relay
  walrelay migrate print > outbox.sql        # for your own migration tool
  walrelay migrate role | psql "$DATABASE_URL"`,
		Args: known,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(migrateUpCommand(), migrateStatusCommand(), migratePrintCommand(), migrateRoleCommand())
	return cmd
}

func migrateUpCommand() *cobra.Command {
	var f migrateFlags
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Apply what is missing",
		Long: `Applies what is missing, each file in a transaction of its own; a second run changes nothing, and two at the
same time wait for each other. What was made by others is described and left as it is.

jsonb is normalised by PostgreSQL (key order, spaces, duplicate keys); choose json, text or bytea
where consumers must get the writer's bytes.

--notify makes a trigger that wakes a relay in RELAY_MODE=polling as soon as rows are committed. It has
a price for the writers: commits that notify wait for each other for a moment.`,
		Args: known,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withDatabase(cmd.Context(), f, func(ctx context.Context, conn *pgx.Conn, o migrations.Options) error {
				steps, err := migrations.Up(ctx, conn, o)
				printSteps(cmd.OutOrStdout(), steps)
				return errors.Join(err, printServerNotes(ctx, cmd.OutOrStdout(), conn, o))
			})
		},
	}
	f.add(cmd)
	return cmd
}

func migrateStatusCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show what is applied and what is missing; changes nothing",
		Args:  known,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withDatabase(cmd.Context(), migrateFlags{}, func(ctx context.Context, conn *pgx.Conn, o migrations.Options) error {
				steps, err := migrations.Status(ctx, conn, o)
				printSteps(cmd.OutOrStdout(), steps)
				return errors.Join(err, printServerNotes(ctx, cmd.OutOrStdout(), conn, o))
			})
		},
	}
}

func migratePrintCommand() *cobra.Command {
	var f migrateFlags
	cmd := &cobra.Command{
		Use:   "print",
		Short: "Print the SQL; needs no database",
		Args:  known,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, o, err := migrateOptions(f, false)
			if err != nil {
				return err
			}
			sql, err := migrations.Print(o)
			if err != nil {
				return err
			}
			_, err = io.WriteString(cmd.OutOrStdout(), sql)
			return err
		},
	}
	f.add(cmd)
	return cmd
}

func migrateRoleCommand() *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:   "role",
		Short: "Print the SQL for a role with the least privilege; needs no database",
		Long: `Prints the SQL that makes a role for the relay and grants what RELAY_AFTER_PUBLISH needs:

  mark     LOGIN REPLICATION, CONNECT, USAGE, SELECT, UPDATE of the one column published_at
  delete   the same, and DELETE
  keep     LOGIN REPLICATION, CONNECT, USAGE, SELECT

RELAY_MODE=polling needs no REPLICATION; OUTBOX_RETENTION needs DELETE.

The publication must be there already: making one takes the owner of the table.`,
		Example: `  walrelay migrate role | psql "$DATABASE_URL"
  RELAY_AFTER_PUBLISH=delete walrelay migrate role --name outbox_relay`,
		Args: known,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, o, err := migrateOptions(migrateFlags{}, false)
			if err != nil {
				return err
			}
			sql, err := migrations.Role(o, name, string(cfg.Relay.AfterPublish))
			if err != nil {
				return &usageError{err}
			}
			_, err = io.WriteString(cmd.OutOrStdout(), sql)
			return err
		},
	}
	cmd.Flags().StringVar(&name, "name", "walrelay", "name of the role")
	return cmd
}

// migrateFlags are those of the commands that make or print the table.
type migrateFlags struct {
	payload string
	notify  bool
}

func (f *migrateFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.payload, "payload", "", "type of the payload column: jsonb, json, text or bytea (default jsonb)")
	cmd.Flags().BoolVar(&f.notify, "notify", false, "make the trigger that wakes a relay which polls")
}

// migrateOptions reads what a migration is about. Kafka has no part in it, so that its variables need
// not be set; the database's only for the commands that connect.
func migrateOptions(f migrateFlags, connects bool) (config.Config, migrations.Options, error) {
	optional := []string{"KAFKA_BROKERS"}
	if !connects {
		optional = append(optional, "DATABASE_URL")
	}
	cfg, _, err := config.Load(os.Environ(), optional...)
	if err != nil {
		return cfg, migrations.Options{}, err
	}
	table, err := outbox.ParseTable(cfg.Outbox.Table)
	if err != nil {
		return cfg, migrations.Options{}, err
	}
	o := migrations.Options{Table: table, Columns: cfg.Outbox.Columns, Publication: cfg.Replication.Publication, Payload: f.payload,
		Notify: f.notify, Polling: cfg.Relay.Mode == relay.Polling, Retention: cfg.Relay.Retention > 0}
	if _, err := migrations.All(o); err != nil {
		return cfg, o, &usageError{err}
	}
	return cfg, o, nil
}

func withDatabase(ctx context.Context, f migrateFlags, do func(context.Context, *pgx.Conn, migrations.Options) error) (err error) {
	cfg, o, err := migrateOptions(f, true)
	if err != nil {
		return err
	}
	conn, err := connect(ctx, cfg.Database)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close(context.WithoutCancel(ctx))) }()
	return do(ctx, conn, o)
}

func connect(ctx context.Context, db config.Database) (*pgx.Conn, error) {
	pc, err := pgx.ParseConfig(db.URL)
	if err != nil {
		return nil, config.Problems(db.Validate())
	}
	pc.RuntimeParams["application_name"] = "walrelay"
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	conn, err := pgx.ConnectConfig(ctx, pc)
	if err != nil {
		// What the server says is enough; pgconn's words around it, or without it, are a line per address.
		text := strings.Join(strings.Fields(err.Error()), " ")
		if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
			text = pg.Error()
		}
		return nil, fmt.Errorf("connect to %s: %s: check DATABASE_URL and that the server lets this host in (pg_hba.conf)", db.Redacted(), text)
	}
	return conn, nil
}

func printSteps(w io.Writer, steps []migrations.Step) {
	for _, s := range steps {
		state := string(s.State)
		switch {
		case s.Changed:
			state = "applied now"
		case s.State == migrations.Applied:
			state = "applied " + s.At.UTC().Format("2006-01-02 15:04")
		}
		fmt.Fprintf(w, "%-20s %-24s %s\n", s.Name, state, s.Makes)
		for _, note := range s.Notes {
			fmt.Fprintf(w, "%-20s   note: %s\n", "", note)
		}
	}
}

func printServerNotes(ctx context.Context, w io.Writer, conn *pgx.Conn, o migrations.Options) error {
	if conn.IsClosed() {
		return nil
	}
	notes, err := migrations.ServerNotes(ctx, conn, o)
	if len(notes) > 0 {
		fmt.Fprintf(w, "\nthe server needs attention:\n  %s\n", strings.Join(notes, "\n  "))
	}
	return err
}
