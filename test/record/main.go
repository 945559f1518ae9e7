// Command record writes what a PostgreSQL server sends over logical replication to files, which the
// tests of package decoder read. A new major version of PostgreSQL is one command:
//
//	go run ./test/record -dsn postgres://postgres@localhost:5432/postgres -out decoder/testdata/19
//
// It needs a superuser and wal_level=logical, and works in a database of its own that it drops. One
// file is written per scenario and form (plain, messages 'true', binary 'true'): a gzip of records,
// each a 4-byte big-endian length and one whole CopyData payload, keepalives included.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"time"

	"github.com/jackc/pgx/v5"
)

func main() {
	dsn := flag.String("dsn", "", "connection string of a superuser")
	out := flag.String("out", "", "folder to write to, by custom decoder/testdata/<major>")
	only := flag.String("only", "", "regular expression: only the scenarios that match")
	timeout := flag.Duration("timeout", 5*time.Minute, "bound of the whole run")
	flag.Parse()
	if *dsn == "" || *out == "" || flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	match, err := regexp.Compile(*only)
	if err != nil {
		fmt.Fprintln(os.Stderr, "record: -only:", err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, *timeout)
	defer cancel()
	if err := run(ctx, *dsn, *out, match, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "record:", err)
		os.Exit(1)
	}
}

// run records all scenarios that match, in a database that it makes and drops.
func run(ctx context.Context, dsn, out string, match *regexp.Regexp, log io.Writer) (err error) {
	admin, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer admin.Close(context.WithoutCancel(ctx))
	server, err := inspect(ctx, admin)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return fmt.Errorf("make the folder: %w", err)
	}
	database := fmt.Sprintf("walrelay_record_%d", os.Getpid())
	if _, err := admin.Exec(ctx, "CREATE DATABASE "+database+" ENCODING 'UTF8' TEMPLATE template0"); err != nil {
		return fmt.Errorf("create database: %w", err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
		defer cancel()
		if _, dropErr := admin.Exec(ctx, "DROP DATABASE "+database+" WITH (FORCE)"); dropErr != nil && err == nil {
			err = fmt.Errorf("drop database: %w", dropErr)
		}
	}()
	for _, s := range scenarios() {
		if !match.MatchString(s.name) {
			continue
		}
		if s.prepares && !server.prepares {
			fmt.Fprintf(log, "%-20s left out: max_prepared_transactions is 0\n", s.name)
			continue
		}
		r := recorder{dsn: dsn, database: database, out: out, log: log}
		if err := r.record(ctx, s); err != nil {
			return fmt.Errorf("scenario %s: %w", s.name, err)
		}
	}
	return nil
}

// server is what must be known of a server before anything is recorded.
type server struct{ prepares bool }

func inspect(ctx context.Context, conn *pgx.Conn) (server, error) {
	var version, prepared int
	var level string
	err := conn.QueryRow(ctx, `SELECT current_setting('server_version_num')::int, current_setting('wal_level'),
		current_setting('max_prepared_transactions')::int`).Scan(&version, &level, &prepared)
	if err != nil {
		return server{}, fmt.Errorf("read settings: %w", err)
	}
	if version < 140000 {
		return server{}, fmt.Errorf("server version %d: pgoutput knows messages and binary from PostgreSQL 14 on", version)
	}
	if level != "logical" {
		return server{}, fmt.Errorf("wal_level is %s: set wal_level=logical and restart the server", level)
	}
	return server{prepares: prepared > 0}, nil
}
