package checkpoint

import (
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/jackc/pglogrepl"
	"golang.org/x/sync/errgroup"
)

// TestNoEarlyAckUnderRace: one source, one goroutine that acknowledges in random order, one settler. No position
// may be confirmable while a row up to it is not acknowledged or not settled, and at the end all is confirmed.
func TestNoEarlyAckUnderRace(t *testing.T) {
	for _, settles := range []bool{true, false} {
		const rows, window = 50_000, 256
		tracker := NewTracker(Options{Rows: window, Settles: settles})
		r := &race{
			t: t, tracker: tracker, settles: settles, acks: make(chan uint64, window),
			ends: make([]pglogrepl.LSN, rows+1), passed: make([]atomic.Bool, rows+1), oldest: 1,
		}
		work := tracker.NewWaiter()
		var g errgroup.Group
		g.Go(func() error { return r.source(rows, tracker.NewWaiter()) })
		g.Go(r.acknowledge)
		if settles {
			g.Go(func() error { return r.settle(rows, work) })
		}
		if err := g.Wait(); err != nil {
			t.Fatal(err)
		}
		if got, want := tracker.Confirmable(), r.ends[rows]; got != want {
			t.Errorf("progress: confirmable %s after all, want %s", got, want)
		}
		if s := tracker.Stats(); s.InFlightRows != 0 || s.InFlightBytes != 0 || s.Unsettled != 0 || s.OpenTransactions != 0 {
			t.Errorf("left over: %+v", s)
		}
	}
}

type race struct {
	t       *testing.T
	tracker *Tracker
	settles bool
	acks    chan uint64
	ends    []pglogrepl.LSN // of the transaction of each token; the source's until it is done
	passed  []atomic.Bool   // of each token: set just before the tracker hears that nothing is to be done for it
	oldest  int             // all before it have passed

	confirmable pglogrepl.LSN
}

func (r *race) source(rows int, room *Waiter) error {
	defer close(r.acks)
	lsn, first := pglogrepl.LSN(0), 1
	random := rand.New(rand.NewPCG(1, 2))
	for token := 1; token <= rows; {
		lsn += 10
		if err := r.tracker.Open(uint32(lsn), lsn); err != nil {
			return err
		}
		for n := random.IntN(8); n > 0 && token <= rows; n-- {
			for r.full() {
				room.Arm()
				if r.full() {
					<-room.C
				}
			}
			r.tracker.Skip(random.IntN(2))
			r.acks <- r.tracker.Add(Row{RowID: int64(token)}, token%1000)
			token++
		}
		if err := r.tracker.Close(lsn + 5); err != nil {
			return err
		}
		for ; first < token; first++ {
			r.ends[first] = lsn + 5
		}
		r.check(token)
	}
	return nil
}

func (r *race) full() bool {
	rows, _ := r.tracker.Room()
	return rows == 0
}

// check runs on the source's goroutine. A row that has not passed now had not when the watermark was read.
func (r *race) check(received int) {
	confirmable := r.tracker.Confirmable()
	if confirmable < r.confirmable {
		r.t.Errorf("confirmable went back from %s to %s", r.confirmable, confirmable)
	}
	r.confirmable = confirmable
	if carried := r.tracker.Carried(); carried.Settled > carried.End {
		r.t.Errorf("settled reaches further than resolved: %+v", carried)
	}
	for r.oldest < received && r.passed[r.oldest].Load() {
		r.oldest++
	}
	if r.oldest < received && confirmable >= r.ends[r.oldest] {
		r.t.Errorf("no early ack: %s is confirmable, row %d ends at %s", confirmable, r.oldest, r.ends[r.oldest])
	}
}

func (r *race) acknowledge() error {
	random := rand.New(rand.NewPCG(3, 4))
	var waiting []uint64
	ack := func() error {
		i := random.IntN(len(waiting))
		token := waiting[i]
		waiting[i] = waiting[len(waiting)-1]
		waiting = waiting[:len(waiting)-1]
		if !r.settles {
			r.passed[token].Store(true)
		}
		if err := r.tracker.Done(token); err != nil {
			return err
		}
		if err := r.tracker.Done(token); !errors.Is(err, ErrToken) {
			r.t.Errorf("a second ack of %d was taken: %v", token, err)
		}
		return nil
	}
	for {
		token, more := uint64(0), true
		if len(waiting) < 32 {
			select {
			case token, more = <-r.acks:
			default:
				if len(waiting) == 0 {
					token, more = <-r.acks
				}
			}
		}
		if token != 0 {
			waiting = append(waiting, token)
		}
		if !more && len(waiting) == 0 {
			return nil
		}
		if len(waiting) > 0 && (token == 0 || random.IntN(2) == 0) {
			if err := ack(); err != nil {
				return err
			}
		}
	}
}

func (r *race) settle(rows int, work *Waiter) error {
	var batch []Pending
	for settled := 0; settled < rows; {
		work.Arm()
		batch = r.tracker.Pending(batch[:0], 50)
		if len(batch) == 0 {
			<-work.C
			continue
		}
		for i := len(batch) - 1; i >= 0; i-- {
			if batch[i].Row.RowID != int64(batch[i].Token) {
				r.t.Errorf("token %d has row %d", batch[i].Token, batch[i].Row.RowID)
			}
			r.passed[batch[i].Token].Store(true)
			if err := r.tracker.Settled(batch[i].Token); err != nil {
				return err
			}
		}
		settled += len(batch)
	}
	return nil
}
