package pgfake_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"go.uber.org/goleak"
	"golang.org/x/sync/errgroup"

	"walrelay/outbox"
	"walrelay/test/pgfake"
	"walrelay/test/pgfake/memnet"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const address = "10.0.0.1:5432"

// rig is a server on a network of its own, and what Kafka would have acknowledged.
type rig struct {
	t        *testing.T
	net      *memnet.Network
	srv      *pgfake.Server
	resolved map[outbox.EventID]bool // written only while the bubble stands still
}

// bubble runs a test in virtual time against a fresh server with slot "s".
func bubble(t *testing.T, cfg pgfake.Config, test func(*rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &rig{t: t, net: memnet.New(), resolved: make(map[outbox.EventID]bool)}
		cfg.Judge.Resolved = func(id outbox.EventID) bool { return r.resolved[id] }
		r.srv = pgfake.New(cfg)
		l, err := r.net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		var group errgroup.Group
		group.Go(func() error { return r.srv.Serve(l) })
		defer func() {
			r.srv.Close()
			if err := group.Wait(); err != nil {
				t.Error(err)
			}
		}()
		r.srv.CreateSlot("s")
		test(r)
	})
}

func (r *rig) config(host string, params ...string) *pgx.ConnConfig {
	r.t.Helper()
	cfg, err := pgx.ParseConfig("postgres://relay@" + address + "/app?sslmode=disable")
	if err != nil {
		r.t.Fatal(err)
	}
	cfg.DialFunc = r.net.From(host)
	for _, p := range params {
		k, v, _ := strings.Cut(p, "=")
		cfg.RuntimeParams[k] = v
	}
	return cfg
}

// sql opens an SQL connection.
func (r *rig) sql(params ...string) *pgx.Conn {
	r.t.Helper()
	conn, err := pgx.ConnectConfig(context.Background(), r.config("10.0.0.9", params...))
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// replication opens a replication connection from the host of a process.
func (r *rig) replication(params ...string) *pgconn.PgConn {
	r.t.Helper()
	cfg := r.config("10.0.0.9", append(params, "replication=database")...)
	conn, err := pgconn.ConnectConfig(context.Background(), &cfg.Config)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

var startOptions = pglogrepl.StartReplicationOptions{PluginArgs: []string{"proto_version '1'", "publication_names 'p'"}}

// stream starts streaming from slot "s" at 0/0.
func (r *rig) stream(params ...string) *stream {
	r.t.Helper()
	conn := r.replication(params...)
	if err := pglogrepl.StartReplication(context.Background(), conn, "s", 0, startOptions); err != nil {
		r.t.Fatal(err)
	}
	return &stream{t: r.t, conn: conn}
}

// stream reads what a walsender sends.
type stream struct {
	t    *testing.T
	conn *pgconn.PgConn
}

// next returns the next message in a few words, or the error that ends the stream.
func (s *stream) next(within time.Duration) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	msg, err := s.conn.ReceiveMessage(ctx)
	if err != nil {
		return "", err
	}
	switch msg := msg.(type) {
	case *pgproto3.CopyData:
		return describe(s.t, msg.Data), nil
	case *pgproto3.ErrorResponse:
		return "error " + msg.Code, pgconn.ErrorResponseToPgError(msg)
	}
	return fmt.Sprintf("%T", msg), nil
}

// until reads up to the first message that begins so, and returns all of them.
func (s *stream) until(prefix string) []string {
	s.t.Helper()
	var all []string
	for {
		m, err := s.next(time.Minute)
		if err != nil {
			s.t.Fatalf("waiting for %q: %v; so far %q", prefix, err, all)
		}
		all = append(all, m)
		if strings.HasPrefix(m, prefix) {
			return all
		}
	}
}

// end reads to the end of the connection.
func (s *stream) end() (last string, err error) {
	for {
		m, err := s.next(time.Hour)
		if err != nil {
			return last, err
		}
		last = m
	}
}

func (s *stream) status(write, flush pglogrepl.LSN) {
	s.t.Helper()
	err := pglogrepl.SendStandbyStatusUpdate(context.Background(), s.conn, pglogrepl.StandbyStatusUpdate{
		WALWritePosition: write, WALFlushPosition: flush, WALApplyPosition: flush,
	})
	if err != nil {
		s.t.Fatal(err)
	}
	synctest.Wait()
}

func describe(t *testing.T, b []byte) string {
	if b[0] == 'k' {
		return fmt.Sprintf("keepalive %s reply=%d", pglogrepl.LSN(binary.BigEndian.Uint64(b[1:])), b[17])
	}
	m, err := pglogrepl.Parse(b[25:])
	if err != nil {
		t.Fatalf("parse %q: %v", b, err)
	}
	switch m := m.(type) {
	case *pglogrepl.BeginMessage:
		return fmt.Sprintf("begin %s xid=%d", m.FinalLSN, m.Xid)
	case *pglogrepl.CommitMessage:
		return fmt.Sprintf("commit %s end=%s", m.CommitLSN, m.TransactionEndLSN)
	case *pglogrepl.RelationMessage:
		return fmt.Sprintf("relation %s.%s %d", m.Namespace, m.RelationName, len(m.Columns))
	case *pglogrepl.InsertMessage:
		var vals []string
		for _, c := range m.Tuple.Columns {
			if c.DataType == 'n' {
				vals = append(vals, "NULL")
			} else {
				vals = append(vals, string(c.Data))
			}
		}
		return "insert " + strings.Join(vals, "|")
	}
	return fmt.Sprintf("%T", m)
}

// settle runs a settle statement of this test's own over the wire.
func (r *rig) settle(conn *pgx.Conn, after pgfake.After, txn *pgfake.Txn) string {
	r.t.Helper()
	r.srv.Handle(pgfake.SettleForTest(after))
	var ids []int64
	var events []string
	for _, row := range txn.Rows() {
		ids = append(ids, row.ID)
		events = append(events, row.EventID.String())
	}
	var outcome string
	err := conn.QueryRow(context.Background(), fmt.Sprintf("/* walrelay:test-settle-%d */ SELECT $1::bigint[], $2::uuid[]", after), ids, events).Scan(&outcome)
	if err != nil {
		return err.Error()
	}
	return outcome
}

func (r *rig) resolve(txn *pgfake.Txn) {
	synctest.Wait()
	for _, row := range txn.Rows() {
		r.resolved[row.EventID] = true
	}
}

func (r *rig) fine() {
	r.t.Helper()
	for _, v := range r.srv.Judge().Violations() {
		r.t.Error(v)
	}
	for _, sql := range r.srv.Unhandled() {
		r.t.Errorf("no handler: %s", sql)
	}
}

// row is an outbox row with something in every column.
func row(key string) pgfake.Row {
	topic := "t." + key
	return pgfake.Row{AggregateType: "Order", AggregateID: key, EventType: "OrderCreated",
		Payload: []byte(`{"n": 1.10}`), Headers: []byte(`{}`), Topic: &topic}
}
