package pgfake_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"walrelay/test/pgfake"
)

func TestSettleModel(t *testing.T) {
	bubble(t, pgfake.Config{}, func(r *rig) {
		ctx, conn := context.Background(), r.sql()
		txn := r.srv.Commit(row("a"), row("b"), row("c"))
		r.resolve(txn)
		r.srv.LockRow(2)
		r.srv.MarkRow(3, time.Now())
		if got := r.settle(conn, pgfake.Mark, txn); got != "touched=[0] marked=[2] locked=[1] absent=[]" {
			r.t.Error(got)
		}
		// Nothing is there before COMMIT, and a connection that ends rolls back.
		r.srv.UnlockRow(2)
		tx, err := conn.Begin(ctx)
		if err != nil {
			r.t.Fatal(err)
		}
		if got := r.settle(conn, pgfake.Mark, txn); got != "touched=[1] marked=[0 2] locked=[] absent=[]" {
			r.t.Error(got)
		}
		if st, _ := r.srv.Row(2); !st.Marked.IsZero() || !st.Locked {
			r.t.Errorf("before COMMIT: %+v", st)
		}
		if got := r.settle(r.sql(), pgfake.Mark, txn); got != "touched=[] marked=[0 2] locked=[1] absent=[]" {
			r.t.Error(got)
		}
		if err := tx.Rollback(ctx); err != nil {
			r.t.Fatal(err)
		}
		if got := r.settle(conn, pgfake.Delete, txn); got != "touched=[0 1 2] marked=[] locked=[] absent=[]" {
			r.t.Error(got)
		}
		if _, ok := r.srv.Row(2); ok || r.srv.Unmarked() != 0 {
			r.t.Error("row 2 is still there")
		}
		// LOCK TABLE: within lock_timeout.
		r.srv.LockTable()
		waiting := r.sql("lock_timeout=2s")
		began := time.Now()
		if got := r.settle(waiting, pgfake.Mark, txn); !strings.Contains(got, "55P03") || time.Since(began) != 2*time.Second {
			r.t.Errorf("%s after %v", got, time.Since(began))
		}
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if _, err := conn.Exec(ctx, "/* walrelay:test-settle-0 */ SELECT $1::bigint[], $2::uuid[]", []int64{}, []string{}); !errors.Is(err, context.DeadlineExceeded) {
			r.t.Errorf("cancelled: %v", err)
		}
		r.srv.UnlockTable()
		r.fine()
	})
}

// Who compares ids, and who judges visibility, needs a snapshot with holes and 64-bit ids.
func TestSnapshot(t *testing.T) {
	bubble(t, pgfake.Config{FirstXID: 1<<32 - 2}, func(r *rig) {
		one, two := r.srv.Begin(), r.srv.Begin()
		one.Insert(row("a"))
		two.Insert(row("b"))
		three := r.srv.Commit(row("c"))
		if one.XID() != 1<<32-2 || two.XID() != 1<<32-1 || three.XID != 1<<32+3 {
			r.t.Errorf("xids %d %d %d", one.XID(), two.XID(), three.XID)
		}
		hidden := two.CommitHidden()
		s := r.srv.Snapshot()
		if s.Visible(one.XID()) || s.Visible(hidden.XID) || !s.Visible(three.XID) || s.Xmin != one.XID() || s.Xmax != three.XID+1 {
			r.t.Errorf("%+v", s)
		}
		two.Show()
		one.Abort()
		if s := r.srv.Snapshot(); !s.Visible(hidden.XID) || s.Xmin != s.Xmax || len(s.Xip) != 0 {
			r.t.Errorf("%+v", s)
		}
	})
}
