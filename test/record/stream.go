package main

import (
	"compress/gzip"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

const publication = "record"

// form is one way to ask for the same changes.
type form struct{ suffix, option string }

func forms() []form {
	return []form{{"", ""}, {"_messages", "messages 'true'"}, {"_binary", "binary 'true'"}}
}

// recorder records one scenario.
type recorder struct {
	dsn, database, out string
	log                io.Writer
}

// record runs the scenario once, with a slot per form in place, and then reads every slot.
func (r *recorder) record(ctx context.Context, s scenario) (err error) {
	config, err := pgx.ParseConfig(r.dsn)
	if err != nil {
		return fmt.Errorf("parse dsn: %w", err)
	}
	config.Database = r.database
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if err := execute(ctx, conn, s.setup); err != nil {
		return err
	}
	for _, f := range forms() {
		if _, err := conn.Exec(ctx, "SELECT pg_create_logical_replication_slot($1, 'pgoutput')", r.slot(f)); err != nil {
			return fmt.Errorf("create slot: %w", err)
		}
		defer func() {
			if dropErr := r.drop(ctx, f); err == nil {
				err = dropErr
			}
		}()
	}
	for _, step := range s.steps {
		if err := execute(ctx, conn, step); err != nil {
			return err
		}
	}
	end, err := position(ctx, conn)
	if err != nil {
		return err
	}
	for _, f := range forms() {
		name := s.name + f.suffix + ".bin.gz"
		n, err := r.write(ctx, f, filepath.Join(r.out, name), end)
		if err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
		fmt.Fprintf(r.log, "%-36s %d records\n", name, n)
	}
	return execute(ctx, conn, "DROP PUBLICATION "+publication+"; DROP TABLE outbox, other CASCADE; "+s.cleanup)
}

// execute runs statements in one simple query, so that BEGIN and COMMIT in them are what they seem.
func execute(ctx context.Context, conn *pgx.Conn, sql string) error {
	if _, err := conn.PgConn().Exec(ctx, sql).ReadAll(); err != nil {
		return fmt.Errorf("%s: %w", sql, err)
	}
	return nil
}

// position is the end of the WAL behind all that the scenario did. A change to a table that is not
// published flushes it.
func position(ctx context.Context, conn *pgx.Conn) (pglogrepl.LSN, error) {
	var text string
	if _, err := conn.Exec(ctx, "INSERT INTO other DEFAULT VALUES"); err != nil {
		return 0, fmt.Errorf("flush: %w", err)
	}
	if err := conn.QueryRow(ctx, "SELECT pg_current_wal_flush_lsn()::text").Scan(&text); err != nil {
		return 0, fmt.Errorf("read the position: %w", err)
	}
	return pglogrepl.ParseLSN(text)
}

func (r *recorder) slot(f form) string { return r.database + f.suffix }

func (r *recorder) drop(ctx context.Context, f form) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	conn, err := r.replicate(ctx)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	err = pglogrepl.DropReplicationSlot(ctx, conn, r.slot(f), pglogrepl.DropReplicationSlotOptions{Wait: true})
	if err != nil {
		return fmt.Errorf("drop slot %s: %w", r.slot(f), err)
	}
	return nil
}

// replicate opens a replication connection with the settings that decide how values are printed.
func (r *recorder) replicate(ctx context.Context) (*pgconn.PgConn, error) {
	config, err := pgconn.ParseConfig(r.dsn)
	if err != nil {
		return nil, fmt.Errorf("parse dsn: %w", err)
	}
	config.Database = r.database
	for name, value := range map[string]string{
		"replication":        "database",
		"client_encoding":    "UTF8",
		"datestyle":          "ISO",
		"intervalstyle":      "postgres",
		"extra_float_digits": "1",
		"bytea_output":       "hex",
		"TimeZone":           "UTC",
	} {
		config.RuntimeParams[name] = value
	}
	conn, err := pgconn.ConnectConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("connect for replication: %w", err)
	}
	return conn, nil
}

// write reads the slot up to end and counts the records that it wrote.
func (r *recorder) write(ctx context.Context, f form, path string, end pglogrepl.LSN) (n int, err error) {
	conn, err := r.replicate(ctx)
	if err != nil {
		return 0, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	options := []string{"proto_version '1'", "publication_names '" + publication + "'"}
	if f.option != "" {
		options = append(options, f.option)
	}
	err = pglogrepl.StartReplication(ctx, conn, r.slot(f), 0, pglogrepl.StartReplicationOptions{PluginArgs: options})
	if err != nil {
		return 0, fmt.Errorf("start replication: %w", err)
	}
	file, err := os.Create(path)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	zip, err := gzip.NewWriterLevel(file, gzip.BestCompression)
	if err != nil {
		return 0, err
	}
	n, err = copyStream(ctx, conn, zip, end)
	return n, errors.Join(err, zip.Close())
}

// copyStream writes records until a keepalive says that all up to end has been sent.
func copyStream(ctx context.Context, conn *pgconn.PgConn, w io.Writer, end pglogrepl.LSN) (int, error) {
	for n := 0; ; n++ {
		msg, err := conn.ReceiveMessage(ctx)
		if err != nil {
			return n, fmt.Errorf("receive: %w", err)
		}
		copyData, ok := msg.(*pgproto3.CopyData)
		if !ok {
			return n, fmt.Errorf("receive: unexpected %T", msg)
		}
		record := binary.BigEndian.AppendUint32(nil, uint32(len(copyData.Data)))
		if _, err := w.Write(append(record, copyData.Data...)); err != nil {
			return n, err
		}
		if copyData.Data[0] != pglogrepl.PrimaryKeepaliveMessageByteID {
			continue
		}
		keepalive, err := pglogrepl.ParsePrimaryKeepaliveMessage(copyData.Data[1:])
		if err != nil {
			return n, err
		}
		if keepalive.ServerWALEnd >= end {
			return n + 1, nil
		}
		// A keepalive asks us, or comes because we asked: asking again gives the next one. The wait
		// keeps a server that is still reading its WAL from flooding the recording.
		select {
		case <-ctx.Done():
			return n, ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
		// Position 1 confirms nothing.
		status := pglogrepl.StandbyStatusUpdate{WALWritePosition: 1, ReplyRequested: true}
		if err := pglogrepl.SendStandbyStatusUpdate(ctx, conn, status); err != nil {
			return n, fmt.Errorf("ask for a keepalive: %w", err)
		}
	}
}
