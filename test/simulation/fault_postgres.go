package simulation

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"walrelay/test/pgfake"
	"walrelay/test/pgfake/memnet"
)

// CutPostgres breaks the connections to PostgreSQL once that many bytes more have passed.
type CutPostgres struct {
	Bytes    int64
	ToServer bool
}

func (a CutPostgres) String() string {
	to := "the relay"
	if a.ToServer {
		to = "PostgreSQL"
	}
	return fmt.Sprintf("connections to PostgreSQL break after %d more bytes to %s", a.Bytes, to)
}

func (a CutPostgres) do(w *world) { w.cut(w.postgresLinks(""), a.Bytes, a.ToServer) }

// StallPostgres makes the connections of one relay half open for a while.
type StallPostgres struct {
	Relay int
	For   time.Duration
}

func (a StallPostgres) String() string {
	return fmt.Sprintf("nothing passes between relay %d and PostgreSQL for %v", a.Relay, a.For)
}

func (a StallPostgres) do(w *world) {
	host := w.host(a.Relay)
	if host == "" {
		return
	}
	w.pg.Judge().Excuse(host)
	links := w.postgresLinks(host)
	for _, l := range links {
		l.Stall()
	}
	w.later(a.For, func() {
		for _, l := range links {
			l.Resume()
		}
		w.pg.Judge().Expect(host)
	})
}

// Terminate is pg_terminate_backend.
type Terminate struct{ Replication bool }

func (a Terminate) String() string {
	if a.Replication {
		return "pg_terminate_backend of the replication connections"
	}
	return "pg_terminate_backend of the SQL connections"
}

func (a Terminate) do(w *world) {
	w.pg.Terminate(func(c *pgfake.Conn) bool { return c.Replication() == a.Replication })
}

// Crash is kill -9 of PostgreSQL: what is not on disk is lost and slots forget what was not saved.
type Crash struct {
	Down, Recovery time.Duration
}

func (a Crash) String() string {
	return fmt.Sprintf("PostgreSQL crashes, is down for %v and recovers for %v", a.Down, a.Recovery)
}

func (a Crash) do(w *world) { w.outage(func() { w.pg.Crash() }, a.Down, a.Recovery) }

// Stop is a fast shutdown, which waits for the relay (H24), and a start.
type Stop struct {
	Patience, Down time.Duration
}

func (a Stop) String() string {
	return fmt.Sprintf("PostgreSQL is stopped (fast; killed after %v) and is down for %v", a.Patience, a.Down)
}

func (a Stop) do(w *world) {
	w.outage(func() {
		ctx, cancel := context.WithTimeout(context.Background(), a.Patience)
		defer cancel()
		_ = w.pg.Stop(ctx) // an error means that patience ended, and then it has crashed
	}, a.Down, 0)
}

// Restore puts an image of the data directory in place that was taken a while ago: another history
// with the same system id and timeline (H4).
type Restore struct {
	Age  time.Duration
	Down time.Duration
}

func (a Restore) String() string {
	return fmt.Sprintf("the data directory is restored from an image that is at least %v old; down for %v", a.Age, a.Down)
}

func (a Restore) do(w *world) {
	img := w.imageOf(a.Age)
	if img == nil {
		return
	}
	w.outage(func() { w.anotherHistory(func() { w.pg.Restore(img) }) }, a.Down, 0)
}

// Promote makes a standby that lags the primary: a new timeline from a little before the end of the WAL.
type Promote struct {
	Txns int // that the standby did not have
	Down time.Duration
}

func (a Promote) String() string {
	return fmt.Sprintf("a standby that lacks the last %d transactions is promoted; down for %v", a.Txns, a.Down)
}

func (a Promote) do(w *world) {
	w.outage(func() {
		txns := w.pg.Txns()
		at, _ := w.pg.LSN()
		if n := len(txns) - a.Txns; a.Txns > 0 && n >= 0 && n < len(txns) {
			at = txns[n].Final
		}
		w.anotherHistory(func() { w.pg.Promote(at) })
	}, a.Down, 0)
}

// LockRows is an application that holds rows for a while.
type LockRows struct {
	Rows int
	For  time.Duration
}

func (a LockRows) String() string {
	return fmt.Sprintf("the application locks %d rows for %v", a.Rows, a.For)
}

func (a LockRows) do(w *world) {
	ids := w.someRows(a.Rows)
	for _, id := range ids {
		w.pg.LockRow(id)
	}
	w.later(a.For, func() {
		for _, id := range ids {
			w.pg.UnlockRow(id)
		}
	})
}

// LockTable is LOCK TABLE … ACCESS EXCLUSIVE.
type LockTable struct{ For time.Duration }

func (a LockTable) String() string {
	return fmt.Sprintf("the application locks the table for %v", a.For)
}

func (a LockTable) do(w *world) {
	w.pg.LockTable()
	w.later(a.For, w.pg.UnlockTable)
}

// HoldSlot makes the slot look active for a while after its connection was ended (55006).
type HoldSlot struct{ For time.Duration }

func (a HoldSlot) String() string {
	return fmt.Sprintf("the replication connection is terminated and its slot stays active for %v", a.For)
}

func (a HoldSlot) do(w *world) {
	Terminate{Replication: true}.do(w)
	w.later(time.Millisecond, func() { w.pg.HoldSlot(slotName, a.For) })
	w.later(a.For, func() {})
}

// FailStream makes every stream end with an error of the server for a while. A relay that meets it
// three times at one position gives up, and its operator starts it again (H18).
type FailStream struct{ For time.Duration }

func (a FailStream) String() string {
	return fmt.Sprintf("every stream ends with XX000 for %v", a.For)
}

func (a FailStream) do(w *world) {
	w.excuse(exitMode, a.For+time.Minute)
	w.pg.FailStream(&pgfake.Error{Code: "XX000", Message: "invalid memory alloc request size 1073741824"})
	w.later(a.For, func() { w.pg.FailStream(nil) })
}

// AddColumn is ALTER TABLE under load.
type AddColumn struct{ Name string }

func (a AddColumn) String() string { return fmt.Sprintf("ALTER TABLE ADD COLUMN %s", a.Name) }

func (a AddColumn) do(w *world) { w.pg.AddColumn(a.Name, 25) }

// cut breaks links at a byte.
func (w *world) cut(links []*memnet.Link, bytes int64, toServer bool) {
	d := memnet.ToClient
	if toServer {
		d = memnet.ToServer
	}
	for _, l := range links {
		l.CutAfter(d, bytes)
	}
}

// someRows are ids of rows of the last transactions, none of them poison: those wait for a person.
func (w *world) someRows(n int) []int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.recent) == 0 {
		return nil
	}
	rng := rand.New(rand.NewPCG(w.plan.Seed, uint64(len(w.recent))))
	var ids []int64
	for range n {
		ids = append(ids, w.recent[rng.IntN(len(w.recent))])
	}
	return ids
}
