package pgfake_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"

	"walrelay/test/pgfake"
)

// start tries START_REPLICATION and returns the error's code and text.
func (r *rig) start() (string, string) {
	conn := r.replication()
	err := pglogrepl.StartReplication(context.Background(), conn, "s", 0, startOptions)
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code, pg.Message + " " + pg.Detail
	}
	return code(err), ""
}

func TestSlotInUseAndSlotLost(t *testing.T) {
	for major, text := range map[int]string{
		14: `cannot read from logical replication slot "s" This slot has been invalidated because it exceeded the maximum reserved size.`,
		17: `can no longer get changes from replication slot "s" This slot has been invalidated because it exceeded the maximum reserved size.`,
		18: `can no longer access replication slot "s" This replication slot has been invalidated due to "wal_removed".`,
	} {
		bubble(t, pgfake.Config{Major: major, SlotLinger: 20 * time.Millisecond}, func(r *rig) {
			s := r.stream()
			if c, msg := r.start(); c != "55006" || !strings.Contains(msg, `"s" is active for PID`) {
				r.t.Errorf("%s %s", c, msg)
			}
			// While streaming the loss looks like an administrator's doing, and a quick reconnect finds the
			// slot active (H25).
			s.until("keepalive")
			r.srv.InvalidateSlot("s", "wal_removed")
			if _, err := s.end(); code(err) != "57P01" {
				r.t.Errorf("streaming: %v", err)
			}
			synctest.Wait()
			if c, _ := r.start(); c != "55006" {
				r.t.Errorf("at once: %s", c)
			}
			time.Sleep(20 * time.Millisecond)
			if c, msg := r.start(); c != "55000" || msg != text {
				r.t.Errorf("%s %q", c, msg)
			}
			if st, _ := r.srv.Slot("s"); st.WALStatus != "lost" || st.RestartLSN != 0 || st.ConfirmedFlushLSN == 0 {
				r.t.Errorf("%+v", st)
			}
		})
	}
}

// H11: an asynchronous commit is in the table, not in the stream, and gone after a crash, with its id.
func TestCrashLosesAsynchronousCommits(t *testing.T) {
	bubble(t, pgfake.Config{}, func(r *rig) {
		open := r.srv.Begin()
		tx := r.srv.Begin()
		tx.Insert(row("a"))
		lost := tx.CommitAsync()
		if st, ok := r.srv.Row(1); !ok || !st.Visible {
			r.t.Error("an asynchronous commit is not visible")
		}
		s := r.stream()
		for range 3 {
			if m, _ := s.next(time.Second); strings.HasPrefix(m, "begin") {
				r.t.Errorf("sent before it was flushed: %s", m)
			}
		}
		r.srv.Crash()
		r.srv.Start()
		if open.Insert(row("x")); open.Commit() != nil {
			r.t.Error("a transaction has survived a crash")
		}
		again := r.srv.Commit(row("b"))
		if got := again.Rows()[0]; got.ID != 1 || got.EventID == lost.Rows()[0].EventID || again.Final != lost.Final {
			r.t.Errorf("row %d event %s at %s", got.ID, got.EventID, again.Final)
		}
		if got := r.settle(r.sql(), pgfake.Mark, lost); !strings.HasSuffix(got, "absent=[0]") {
			r.t.Errorf("the lost event settles another: %s", got)
		}
		r.fine()
	})
}

// H14: a mark that was not on disk is gone after a crash.
func TestCrashLosesAsynchronousMarks(t *testing.T) {
	for _, after := range []pgfake.After{pgfake.Mark, pgfake.Delete} {
		bubble(t, pgfake.Config{}, func(r *rig) {
			txn := r.srv.Commit(row("a"))
			r.resolve(txn)
			r.settle(r.sql("synchronous_commit=off"), after, txn)
			if r.srv.Unmarked() != 0 {
				r.t.Error("not settled")
			}
			r.srv.Crash()
			r.srv.Start()
			if r.srv.Unmarked() != 1 {
				r.t.Error("the mark has survived")
			}
			r.settle(r.sql("synchronous_commit=local"), after, txn)
			r.srv.Crash()
			r.srv.Start()
			if r.srv.Unmarked() != 0 {
				r.t.Error("a mark on disk was lost")
			}
		})
	}
}

// H4: the same system id and timeline, the same positions, other transactions.
func TestRestoredImage(t *testing.T) {
	bubble(t, pgfake.Config{}, func(r *rig) {
		r.srv.Commit(row("a"))
		img := r.srv.Image()
		was := r.srv.Commit(row("b"))
		r.resolve(was)
		r.settle(r.sql(), pgfake.Mark, was)
		r.srv.Restore(img)
		r.srv.Start()
		if _, ok := r.srv.Row(2); ok {
			r.t.Error("row 2 is in the image")
		}
		tx := r.srv.Begin()
		tx.Insert(row("c"), row("d"))
		is := tx.Commit()
		if is.XID != was.XID || is.Rows()[0].ID != was.Rows()[0].ID || is.Rows()[0].EventID == was.Rows()[0].EventID {
			r.t.Errorf("xid %d row %d, was %d %d", is.XID, is.Rows()[0].ID, was.XID, was.Rows()[0].ID)
		}
		id, err := pglogrepl.IdentifySystem(context.Background(), r.replication())
		if err != nil || id.Timeline != 1 {
			r.t.Errorf("%+v, %v", id, err)
		}
		s := r.stream()
		s.until(fmt.Sprintf("commit %s", is.Final))
		r.resolve(is)
		s.status(is.End, is.End)
		if v := r.srv.Judge().Violations(); len(v) != 1 || !strings.Contains(v[0].Story, "(row 1)") {
			r.t.Errorf("the judge says %v", v) // row 1 of the image was never resolved
		}
	})
}

func TestPromotion(t *testing.T) {
	bubble(t, pgfake.Config{}, func(r *rig) {
		a := r.srv.Commit(row("a"))
		lost := r.srv.Commit(row("b"))
		r.srv.Promote(a.End)
		r.srv.Start()
		conn := r.replication()
		id, err := pglogrepl.IdentifySystem(context.Background(), conn)
		if err != nil || id.Timeline != 2 {
			r.t.Errorf("%+v, %v", id, err)
		}
		h, err := pglogrepl.TimelineHistory(context.Background(), conn, 2)
		if want := fmt.Sprintf("1\t%s\tno recovery target specified\n", lost.First); err != nil || string(h.Content) != want {
			r.t.Errorf("%q, %v; want %q", h.Content, err, want)
		}
		c := r.srv.Commit(row("c"))
		got := r.stream().until(fmt.Sprintf("commit %s", c.Final))
		if n := len(got); n != 8 || !strings.Contains(got[n-2], "|c|") {
			r.t.Errorf("%q", got)
		}
	})
}

// A start position above the server's WAL is accepted in silence and loses what is below it (FACTS E3).
func TestStartAboveTheWAL(t *testing.T) {
	bubble(t, pgfake.Config{}, func(r *rig) {
		_, end := r.srv.LSN()
		conn := r.replication()
		if err := pglogrepl.StartReplication(context.Background(), conn, "s", end+1000, startOptions); err != nil {
			r.t.Fatal(err)
		}
		r.srv.Commit(row("lost"))
		r.srv.Noise(1000)
		txn := r.srv.Commit(row("b"))
		s := &stream{r.t, conn}
		if got := strings.Join(s.until("commit"), ";"); strings.Contains(got, "lost") || !strings.Contains(got, txn.Final.String()) {
			r.t.Error(got)
		}
	})
}

func TestStreamError(t *testing.T) {
	bubble(t, pgfake.Config{}, func(r *rig) {
		r.srv.FailStream(&pgfake.Error{Code: "42704", Message: `publication "p" does not exist`})
		s := r.stream()
		s.until("keepalive")
		r.srv.Commit(row("a"))
		for {
			_, err := s.next(time.Minute)
			if err != nil {
				if code(err) != "42704" {
					r.t.Error(err)
				}
				break
			}
		}
		synctest.Wait()
		if c, _ := r.start(); c != "" {
			r.t.Errorf("the slot is not free: %s", c)
		}
		r.srv.FailStream(nil)
	})
}

func TestUnpublishedRowsAreNotStreamed(t *testing.T) {
	bubble(t, pgfake.Config{}, func(r *rig) {
		s := r.stream()
		r.srv.Publish(false)
		r.srv.Commit(row("a"))
		r.srv.Publish(true)
		b := r.srv.Commit(row("b"))
		if got := strings.Join(s.until(fmt.Sprintf("commit %s", b.Final)), ";"); strings.Contains(got, "|a|") {
			r.t.Error(got)
		}
	})
}

// H21: somebody else moves the slot; and somebody else uses it for a while.
func TestSlotMovedAndHeldByOthers(t *testing.T) {
	bubble(t, pgfake.Config{}, func(r *rig) {
		a, b := r.srv.Commit(row("a")), r.srv.Commit(row("b"))
		if !r.srv.AdvanceSlot("s", a.End) || !r.srv.HoldSlot("s", 3*time.Second) {
			r.t.Fatal("the slot is not free")
		}
		if c, _ := r.start(); c != "55006" {
			r.t.Errorf("held: %s", c)
		}
		time.Sleep(3 * time.Second)
		s := r.stream()
		if got := s.until("commit"); got[1] != fmt.Sprintf("begin %s xid=%d", b.Final, uint32(b.XID)) {
			r.t.Errorf("%q", got)
		}
		s.status(b.End, a.End)
		_ = s.conn.Close(context.Background())
		synctest.Wait()
		if !r.srv.DropSlot("s") {
			r.t.Error("not dropped")
		}
		if c, _ := r.start(); c != "42704" {
			r.t.Errorf("dropped: %s", c)
		}
		r.fine()
	})
}
