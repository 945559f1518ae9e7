package pgfake_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"

	"walrelay/test/pgfake"
	"walrelay/test/pgfake/memnet"
)

// Cut at every byte of a whole conversation: the server is usable afterwards, and what was not
// confirmed comes again.
func TestCutAtEveryByte(t *testing.T) {
	for _, way := range []memnet.Direction{memnet.ToClient, memnet.ToServer} {
		cutAtEveryByte(t, way)
	}
}

func cutAtEveryByte(t *testing.T, way memnet.Direction) {
	whole := int64(0)
	for at := int64(-1); at <= whole; at++ {
		bubble(t, pgfake.Config{}, func(r *rig) {
			txn := r.srv.Commit(row("a"))
			r.net.OnDial(func(l *memnet.Link) error {
				if at >= 0 {
					l.CutAfter(way, at)
				}
				return nil
			})
			err := r.conversation(txn)
			if at < 0 {
				whole = r.net.Links()[0].Passed(way)
				if err != nil {
					r.t.Fatal(err)
				}
				return
			}
			if err == nil && at < whole-64 { // a keepalive may follow what the conversation needs
				r.t.Fatalf("cut at %d of %d: no error", at, whole)
			}
			r.net.OnDial(nil)
			synctest.Wait()
			if err := r.conversation(txn); err != nil {
				r.t.Fatalf("after a cut at %d: %v", at, err)
			}
			r.fine()
		})
	}
	if whole < 100 {
		t.Errorf("the conversation has %d bytes", whole)
	}
}

// conversation reads up to the end of a transaction.
func (r *rig) conversation(txn *pgfake.Txn) error {
	cfg := r.config("10.0.0.9", "replication=database")
	conn, err := pgconn.ConnectConfig(context.Background(), &cfg.Config)
	if err != nil {
		return err
	}
	r.t.Cleanup(func() { _ = conn.Close(context.Background()) })
	if err := pglogrepl.StartReplication(context.Background(), conn, "s", 0, startOptions); err != nil {
		return err
	}
	s := &stream{t: r.t, conn: conn}
	for {
		m, err := s.next(time.Minute)
		if err != nil || m == fmt.Sprintf("commit %s end=%s", txn.Final, txn.End) {
			return err
		}
	}
}
