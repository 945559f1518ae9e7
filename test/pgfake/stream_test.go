package pgfake_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"walrelay/test/pgfake"
	"walrelay/test/pgfake/memnet"
)

func TestStreamOfOneTransaction(t *testing.T) {
	bubble(t, pgfake.Config{}, func(r *rig) {
		s := r.stream()
		txn := r.srv.Commit(row("a"), row("b"))
		slot, _ := r.srv.Slot("s")
		got := strings.Join(s.until("commit"), "\n")
		ids := txn.Rows()
		want := fmt.Sprintf(`keepalive %s reply=0
begin %s xid=%d
relation public.outbox 11
insert 1|%s|Order|a|OrderCreated|{"n": 1.10}|{}|t.a|NULL|2000-01-01 00:00:00+00|NULL
insert 2|%s|Order|b|OrderCreated|{"n": 1.10}|{}|t.b|NULL|2000-01-01 00:00:00+00|NULL
commit %s end=%s`, slot.ConfirmedFlushLSN, txn.Final, uint32(txn.XID), ids[0].EventID, ids[1].EventID, txn.Final, txn.End)
		if got != want {
			r.t.Errorf("got\n%s\nwant\n%s", got, want)
		}
		// Nothing is confirmed, so the next caught-up walsender says where it is.
		if m := s.until("keepalive"); m[len(m)-1] != fmt.Sprintf("keepalive %s reply=0", txn.End) {
			r.t.Errorf("%q", m)
		}
		r.resolve(txn)
		if got := r.settle(r.sql(), pgfake.Mark, txn); got != "touched=[0 1] marked=[] locked=[] absent=[]" {
			r.t.Error(got)
		}
		s.status(txn.End, txn.End)
		if slot, _ = r.srv.Slot("s"); slot.ConfirmedFlushLSN != txn.End || slot.ActivePID == 0 {
			r.t.Errorf("slot %+v", slot)
		}
		if _, err := pglogrepl.SendStandbyCopyDone(context.Background(), s.conn); err != nil {
			r.t.Fatal(err)
		}
		if slot, _ = r.srv.Slot("s"); slot.ActivePID != 0 {
			r.t.Error("the slot is active after CopyDone")
		}
		if _, err := pglogrepl.IdentifySystem(context.Background(), s.conn); err != nil {
			r.t.Errorf("the connection is not usable after CopyDone: %v", err)
		}
		r.fine()
	})
}

func TestWhatIsSentAgain(t *testing.T) {
	bubble(t, pgfake.Config{}, func(r *rig) {
		a, b := r.srv.Commit(row("a")), r.srv.Commit(row("b"))
		r.resolve(a)
		r.settle(r.sql(), pgfake.Mark, a)
		s := r.stream()
		s.until(fmt.Sprintf("commit %s", b.Final))
		s.status(b.End, a.End)
		_ = s.conn.Close(context.Background())
		synctest.Wait()

		// A reconnect resumes behind what was confirmed; a crash goes back to what was saved.
		s = r.stream()
		if got := s.until("commit"); got[1] != fmt.Sprintf("begin %s xid=%d", b.Final, uint32(b.XID)) {
			r.t.Errorf("after a reconnect: %q", got)
		}
		r.srv.Crash()
		if _, err := s.end(); !bareEOF(err) {
			r.t.Errorf("crash: %v", err)
		}
		r.srv.Start()
		s = r.stream()
		if got := s.until("commit"); got[1] != fmt.Sprintf("begin %s xid=%d", a.Final, uint32(a.XID)) {
			r.t.Errorf("after a crash: %q", got)
		}
		// Once a running-xacts record is confirmed, the slot is saved and survives a crash.
		s.until(fmt.Sprintf("commit %s", b.Final))
		r.resolve(b)
		r.settle(r.sql(), pgfake.Mark, b)
		r.srv.RunningXacts()
		_, end := r.srv.LSN()
		s.until(fmt.Sprintf("keepalive %s", end))
		s.status(end, end)
		r.srv.Crash()
		r.srv.Start()
		if slot, _ := r.srv.Slot("s"); slot.ConfirmedFlushLSN != end || slot.RestartLSN == 0 {
			r.t.Errorf("slot %+v, want %s", slot, end)
		}
		r.fine()
	})
}

func bareEOF(err error) bool {
	var pg *pgconn.PgError
	return err != nil && !errors.As(err, &pg) && (errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF))
}

func TestEmptyTransactionsByMajor(t *testing.T) {
	for major, want := range map[int]string{14: "begin,commit,keepalive", 15: "keepalive", 18: "keepalive"} {
		bubble(t, pgfake.Config{Major: major}, func(r *rig) {
			s := r.stream()
			s.until("keepalive")
			tx := r.srv.Begin()
			tx.Write(100)
			txn := tx.Commit()
			foreign := r.srv.BeginForeign()
			foreign.Write(100)
			end := foreign.Commit().End
			var kinds []string
			for _, m := range s.until(fmt.Sprintf("keepalive %s", end)) {
				kind, _, _ := strings.Cut(m, " ")
				kinds = append(kinds, kind)
			}
			if got := strings.Join(slices.Compact(kinds), ","); got != want || txn.End >= end {
				r.t.Errorf("major %d: %s", major, got)
			}
			s.status(end, end)
			r.fine()
		})
	}
}

func TestOrdinalsRelationsAndShapes(t *testing.T) {
	bubble(t, pgfake.Config{}, func(r *rig) {
		s := r.stream()
		tx := r.srv.Begin()
		tx.Insert(pgfake.Row{ID: 7, Relation: "other"}, row("a"))
		r.srv.AddColumn("extra", pgtype.TextOID)
		tx.Insert(row("b"), pgfake.Row{Deleted: true, Text: map[string][]byte{"event_id": []byte("no uuid")}})
		tx.Commit()
		var kinds []string
		for _, m := range s.until("commit") {
			f := strings.Fields(m)
			kinds = append(kinds, strings.Join(f[:min(len(f), 3)], " "))
		}
		got := strings.Join(kinds[2:], "; ")
		for _, want := range []string{"relation public.other 2; insert 7|NULL; relation public.outbox 11; insert ", "relation public.outbox 12", "no uuid|"} {
			if !strings.Contains(got, want) {
				r.t.Errorf("%q is not in %q", want, got)
			}
		}
	})
}

// A commit record that starts where the last one ended is legal, and the transaction is sent after
// the first one's end was confirmed.
func TestCommitAtThePreviousEnd(t *testing.T) {
	bubble(t, pgfake.Config{}, func(r *rig) {
		one, two := r.srv.Begin(), r.srv.Begin()
		one.Insert(row("a"))
		two.Insert(row("b"))
		a, b := one.Commit(), two.Commit()
		if a.End != b.Final {
			r.t.Fatalf("%s, %s", a.End, b.Final)
		}
		r.resolve(a)
		r.settle(r.sql(), pgfake.Mark, a)
		s := r.stream()
		s.until(fmt.Sprintf("commit %s", a.Final))
		s.status(a.End, a.End)
		_ = s.conn.Close(context.Background())
		synctest.Wait()
		if got := r.stream().until("commit"); got[1] != fmt.Sprintf("begin %s xid=%d", b.Final, uint32(b.XID)) {
			r.t.Errorf("%q", got)
		}
		r.fine()
	})
}

func TestTimeoutIsABareEOF(t *testing.T) {
	bubble(t, pgfake.Config{}, func(r *rig) {
		s := r.stream("wal_sender_timeout=2s")
		began := time.Now()
		last, err := s.end()
		if !bareEOF(err) || time.Since(began) != 2*time.Second || !strings.HasSuffix(last, "reply=1") {
			r.t.Errorf("after %v: %v, last %q", time.Since(began), err, last)
		}
		if v := r.srv.Judge().Violations(); len(v) != 1 || v[0].Promise != pgfake.Harmless {
			r.t.Errorf("the judge says %v", v)
		}
	})
}

// The server stops sending when nobody reads, takes statuses meanwhile, and goes on.
func TestFlowControl(t *testing.T) {
	bubble(t, pgfake.Config{}, func(r *rig) {
		r.net.SetBuffer(64 << 10)
		s := r.stream("wal_sender_timeout=10s")
		rows := make([]pgfake.Row, 5000)
		for i := range rows {
			rows[i] = row("k")
		}
		txn := r.srv.Commit(rows...)
		passed := func() int64 {
			for _, l := range r.net.Links() {
				return l.Passed(memnet.ToClient)
			}
			return 0
		}
		synctest.Wait()
		before := passed()
		for range 20 {
			time.Sleep(time.Second)
			s.status(0, 0)
		}
		if got := passed(); got != before || got > 200<<10 {
			r.t.Errorf("%d bytes were sent to a client that does not read, then %d", before, got)
		}
		inserts := 0
		for _, m := range s.until(fmt.Sprintf("commit %s", txn.Final)) {
			if strings.HasPrefix(m, "insert") {
				inserts++
			}
		}
		if inserts != len(rows) {
			r.t.Errorf("%d inserts", inserts)
		}
		r.fine()
	})
}
