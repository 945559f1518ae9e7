package pgfake_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
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

// H24: a stopping server asks again and again, and is gone once the client has confirmed or left.
func TestShutdownFlood(t *testing.T) {
	bubble(t, pgfake.Config{}, func(r *rig) {
		sql := r.sql()
		s := r.stream()
		slot, _ := r.srv.Slot("s")
		r.srv.Commit(row("a"))
		s.until("commit")
		stopped := make(chan error, 1)
		began := time.Now()
		go func() { stopped <- r.srv.Stop(context.Background()) }()
		synctest.Wait()
		if _, err := sql.Exec(context.Background(), "SELECT 1"); code(err) != "57P01" {
			r.t.Errorf("the SQL connection: %v", err)
		}
		if _, err := pgx.ConnectConfig(context.Background(), r.config("10.0.0.9")); code(err) != "57P03" {
			r.t.Errorf("a new connection: %v", err)
		}
		for range 100 {
			s.until(fmt.Sprintf("keepalive %s reply=1", s.lastWAL(r)))
			s.status(slot.ConfirmedFlushLSN, slot.ConfirmedFlushLSN)
		}
		if d := time.Since(began); d > 20*time.Millisecond {
			r.t.Errorf("100 requests took %v", d)
		}
		select {
		case err := <-stopped:
			r.t.Fatalf("stopped with an unconfirmed client: %v", err)
		default:
		}
		_ = s.conn.Close(context.Background())
		if err := <-stopped; err != nil {
			r.t.Error(err)
		}
		if _, err := pgx.ConnectConfig(context.Background(), r.config("10.0.0.9")); !errors.Is(err, syscall.ECONNREFUSED) {
			r.t.Errorf("down: %v", err)
		}
		r.srv.Recover()
		if _, err := pgx.ConnectConfig(context.Background(), r.config("10.0.0.9")); code(err) != "57P03" {
			r.t.Errorf("recovering: %v", err)
		}
		r.srv.Start()
		r.fine()
	})
}

func (s *stream) lastWAL(r *rig) pglogrepl.LSN {
	_, end := r.srv.LSN()
	return end
}

func TestShutdownOfAConfirmedClient(t *testing.T) {
	for _, major := range []int{15, 17} {
		bubble(t, pgfake.Config{Major: major}, func(r *rig) {
			before, _ := r.srv.Slot("s")
			s := r.stream()
			s.until("keepalive")
			stopped := make(chan error, 1)
			go func() { stopped <- r.srv.Stop(context.Background()) }()
			synctest.Wait()
			end := s.lastWAL(r)
			s.until(fmt.Sprintf("keepalive %s reply=1", end))
			s.status(end, end)
			if m := s.until("*pgproto3.CommandComplete"); len(m) == 0 {
				r.t.Error("no CommandComplete")
			}
			if _, err := s.end(); !bareEOF(err) {
				r.t.Error(err)
			}
			if err := <-stopped; err != nil {
				r.t.Error(err)
			}
			// A confirm of keepalives alone is lost by a clean restart up to 16, and kept from 17 on.
			want := before.ConfirmedFlushLSN
			if major >= 17 {
				want = end
			}
			if st, _ := r.srv.Slot("s"); st.ConfirmedFlushLSN != want {
				r.t.Errorf("major %d: %s, want %s", major, st.ConfirmedFlushLSN, want)
			}
			r.fine()
		})
	}
}

// A server that cannot stop because of a client is killed when the operator's patience ends.
func TestStopIsBounded(t *testing.T) {
	bubble(t, pgfake.Config{}, func(r *rig) {
		s := r.stream()
		r.srv.Commit(row("a"))
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := r.srv.Stop(ctx); !errors.Is(err, context.DeadlineExceeded) {
			r.t.Error(err)
		}
		if _, err := s.end(); !bareEOF(err) {
			r.t.Error(err)
		}
		r.srv.Start()
	})
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
