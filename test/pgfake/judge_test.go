package pgfake_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"walrelay/test/pgfake"
)

// judged is a stream over which two transactions have come, the first of them settled.
type judged struct {
	*rig
	s    *stream
	a, b *pgfake.Txn
}

// Every kind of bad status is caught, and named after the promise that it breaks.
func TestJudgeCatches(t *testing.T) {
	tests := []struct {
		name    string
		promise string
		story   string // part of it
		cfg     pgfake.Config
		do      func(*judged)
	}{
		{"nothing on good behaviour", "", "", pgfake.Config{}, func(j *judged) {
			j.s.status(0, 0)
			j.s.status(j.b.End, j.a.End)
			j.s.status(j.b.End, j.a.End)
			j.settled(j.b)
			j.s.status(j.b.End, j.b.End)
			j.srv.Noise(100)
			_, end := j.srv.LSN()
			j.s.until(fmt.Sprintf("keepalive %s", end))
			j.s.status(end, end)
		}},
		{"confirmed on receive", pgfake.NoEarlyAck, "is not resolved", pgfake.Config{}, func(j *judged) {
			j.s.status(j.b.End, j.b.End)
		}},
		{"confirmed when acknowledged", pgfake.NoEarlyAck, "is resolved but not settled", pgfake.Config{}, func(j *judged) {
			j.resolve(j.b)
			j.s.status(j.b.End, j.b.End)
		}},
		{"confirmed a keepalive while something is unsettled", pgfake.NoEarlyAck, "is not resolved", pgfake.Config{}, func(j *judged) {
			j.srv.Noise(100)
			_, end := j.srv.LSN()
			j.s.until(fmt.Sprintf("keepalive %s", end))
			j.s.status(end, end)
		}},
		{"confirmed one that is not visible", pgfake.NoEarlyAck, "not visible yet (H1)", pgfake.Config{}, func(j *judged) {
			j.settled(j.b)
			tx := j.srv.Begin()
			tx.Insert(row("c"))
			c := tx.CommitHidden()
			j.resolve(c)
			if got := j.settle(j.sql(), pgfake.Mark, c); !strings.HasSuffix(got, "absent=[0]") {
				j.t.Error(got)
			}
			j.s.until(fmt.Sprintf("commit %s", c.Final))
			j.s.status(c.End, c.End)
		}},
		{"marked without synchronous_commit", pgfake.NoEarlyAck, "not on disk (H14)", pgfake.Config{}, func(j *judged) {
			j.resolve(j.b)
			j.settle(j.sql("synchronous_commit=off"), pgfake.Mark, j.b)
			j.s.status(j.b.End, j.b.End)
		}},
		{"confirmed commit_lsn", pgfake.NoEarlyAck, "is no position of this server", pgfake.Config{}, func(j *judged) {
			j.settled(j.b)
			j.s.status(j.b.End, j.b.Final)
		}},
		{"confirmed more than was sent", pgfake.NoEarlyAck, "the last position that this stream was sent", pgfake.Config{}, func(j *judged) {
			j.settled(j.b)
			_, end := j.srv.LSN()
			j.s.status(end+0x1000, end+0x1000)
		}},
		{"went back", pgfake.NoEarlyAck, "goes back: ", pgfake.Config{}, func(j *judged) {
			j.settled(j.b)
			j.s.status(j.b.End, j.b.End)
			j.s.status(j.b.End, j.a.End)
		}},
		{"went back after a reconnect", pgfake.NoEarlyAck, "this process confirmed", pgfake.Config{}, func(j *judged) {
			j.settled(j.b)
			j.s.status(j.b.End, j.b.End)
			_ = j.s.conn.Close(context.Background())
			synctest.Wait()
			j.stream().status(j.b.End, j.a.End)
		}},
		{"write below flush", pgfake.NoEarlyAck, "below flush", pgfake.Config{}, func(j *judged) {
			j.s.status(1, j.a.End)
		}},
		{"silence", pgfake.Harmless, "no status for 31s", pgfake.Config{}, func(j *judged) {
			time.Sleep(31 * time.Second)
			j.s.status(j.a.End, j.a.End)
		}},
		{"silence with an excuse", "", "", pgfake.Config{}, func(j *judged) {
			j.srv.Judge().Excuse("10.0.0.9")
			time.Sleep(31 * time.Second)
			j.srv.Judge().Expect("10.0.0.9")
			j.s.status(j.a.End, j.a.End)
		}},
		{"settled before it was acknowledged", pgfake.Delivered, "a crash now would lose it", pgfake.Config{}, func(j *judged) {
			j.settle(j.sql(), pgfake.Mark, j.b)
		}},
		{"streamed without a lock", pgfake.Harmless, "two leaders", pgfake.Config{Judge: pgfake.JudgeConfig{NeedLock: true}}, func(*judged) {}},
		{"only acknowledged, in keep", "", "", pgfake.Config{Judge: pgfake.JudgeConfig{After: pgfake.Keep}}, func(j *judged) {
			j.resolve(j.b)
			j.s.status(j.b.End, j.b.End)
		}},
		{"removed by the application", "", "", pgfake.Config{}, func(j *judged) {
			if !j.srv.DeleteRow(j.b.Rows()[0].ID) {
				j.t.Error("not deleted")
			}
			j.s.status(j.b.End, j.b.End)
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			bubble(t, test.cfg, func(r *rig) {
				j := &judged{rig: r, s: r.stream(), a: r.srv.Commit(row("a")), b: r.srv.Commit(row("b"))}
				j.settled(j.a)
				j.s.until(fmt.Sprintf("commit %s", j.b.Final))
				test.do(j)
				got := r.srv.Judge().Violations()
				switch {
				case test.promise == "" && len(got) > 0:
					r.t.Errorf("the judge says %v", got)
				case test.promise == "":
				case len(got) != 1 || got[0].Promise != test.promise || !strings.Contains(got[0].Story, test.story):
					r.t.Errorf("the judge says %v", got)
				}
			})
		})
	}
}

func (j *judged) settled(txn *pgfake.Txn) {
	j.t.Helper()
	j.resolve(txn)
	if got := j.settle(j.sql(), pgfake.Mark, txn); !strings.HasPrefix(got, "touched=[0]") {
		j.t.Error(got)
	}
}

// After a crash the server has forgotten what was confirmed: a process may say so again, or less.
func TestJudgeAllowsWhatTheServerForgot(t *testing.T) {
	bubble(t, pgfake.Config{}, func(r *rig) {
		j := &judged{rig: r, s: r.stream(), a: r.srv.Commit(row("a")), b: r.srv.Commit(row("b"))}
		j.settled(j.a)
		j.settled(j.b)
		slot, _ := r.srv.Slot("s")
		j.s.until(fmt.Sprintf("commit %s", j.b.Final))
		j.s.status(j.b.End, j.b.End)
		r.srv.Crash()
		r.srv.Start()
		j.s = r.stream()
		j.s.status(slot.ConfirmedFlushLSN, slot.ConfirmedFlushLSN)
		j.s.until(fmt.Sprintf("commit %s", j.b.Final))
		j.s.status(j.b.End, j.b.End)
		r.fine()
	})
}

// The story names what a person needs to find the bug.
func TestViolationReadsAsAStory(t *testing.T) {
	bubble(t, pgfake.Config{}, func(r *rig) {
		s := r.stream()
		txn := r.srv.Commit(row("a"))
		s.until("commit")
		s.status(txn.End, txn.End)
		v := r.srv.Judge().Violations()
		want := fmt.Sprintf(`promise "no early ack" broken by 10.0.0.9 at 00:00:00.000000: status flush=%s covers transaction %d (commit %s, end %s), but event %s (row 1) of it is not resolved`,
			txn.End, txn.XID, txn.Final, txn.End, txn.Rows()[0].EventID)
		if len(v) != 1 || v[0].String() != want {
			r.t.Errorf("got  %v\nwant %s", v, want)
		}
		if r.srv.Judge().Statuses() != 1 {
			r.t.Error("statuses are not counted")
		}
	})
}
