package pgfake_test

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"

	"walrelay/test/pgfake"
)

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
