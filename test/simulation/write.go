package simulation

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"walrelay/outbox"
	"walrelay/test/pgfake"
)

// Write is a writer's transaction. Its rows follow from the numbers here, so that it can be told in
// a line and made smaller.
type Write struct {
	Seed   uint64 // of the rows
	Rows   int
	Size   int // bytes of a payload, roughly
	Keys   int // how many different keys
	Others int // of a hundred rows, those of another published table
	Ready  int // of a hundred rows, those inserted with published_at set
	How    How
	Poison Poison // what is wrong with one of the rows
	Delete bool   // rows are deleted again by the same transaction
}

// How a transaction ends, and when.
type How uint8

const (
	Plain   How = iota // flushed and visible
	Hidden             // streamed before it is visible (H1)
	Async              // synchronous_commit=off: lost where the server crashes within the next moment (H11)
	Slow               // stays open for a while, so that later ones commit first
	Aborted            // rolled back
	Empty              // writes to tables that are not published: Begin and Commit on PostgreSQL 14
	Foreign            // in another database
)

func (h How) String() string {
	return [...]string{"", "visible late", "asynchronous", "long", "rolled back", "of other tables", "of another database"}[h]
}

// Poison is why a row can never be published.
type Poison uint8

const (
	Sound      Poison = iota
	Unroutable        // its topic is no topic's name
	TooLarge          // larger than a message may be
	Huge              // larger than the relay holds in memory (H17)
	Unreadable        // a column is NULL that must not be
	Refused           // the broker rejects this record, and this one alone
)

func (p Poison) String() string {
	return [...]string{"", "unroutable", "too large", "huge", "unreadable", "refused by the broker"}[p]
}

func (a Write) String() string {
	s := fmt.Sprintf("transaction %d: %d rows", a.Seed, a.Rows)
	if a.How != Plain {
		s += ", " + a.How.String()
	}
	if a.Size > 200 {
		s += fmt.Sprintf(", payloads of %d bytes", a.Size)
	}
	if a.Poison != Sound {
		s += ", one of them poison: " + a.Poison.String()
	}
	if a.Delete {
		s += ", deleted again"
	}
	return s
}

// holdFor is how long a transaction that is late stays open, or invisible. Longer than the relay
// takes to publish, to settle in vain and to confirm by mistake.
const holdFor = 3 * time.Second

func (a Write) do(w *world) {
	switch a.How {
	case Foreign:
		tx := w.pg.BeginForeign()
		tx.Write(1 + a.Rows*50)
		tx.Commit()
		return
	case Empty:
		tx := w.pg.Begin()
		tx.Write(1 + a.Rows*50)
		tx.Commit()
		return
	}
	rows, poison := a.rows(w.plan.Setup.MaxMessage)
	if a.Poison == Refused {
		w.refuse(poison)
	}
	w.foresee(rows, poison)
	tx := w.pg.Begin()
	half := len(rows) / 2
	tx.Insert(rows[:half]...)
	if a.How == Slow {
		w.later(holdFor, func() {
			tx.Insert(rows[half:]...)
			w.committed(tx.Commit(), poison)
		})
		return
	}
	tx.Insert(rows[half:]...)
	switch a.How {
	case Aborted:
		tx.Abort()
	case Hidden:
		w.committed(tx.CommitHidden(), poison)
		w.later(holdFor, tx.Show)
	case Async:
		w.committed(tx.CommitAsync(), poison)
		w.later(200*time.Millisecond, w.pg.Flush)
	default:
		w.committed(tx.Commit(), poison)
	}
}

var (
	aggregates = [...]string{"order", "user"}
	events     = [...]string{"created", "changed", "closed"}
	owned      = [...]string{"own.a", "own.b"}
)

// eventID is that of row i of the transaction.
func (a Write) eventID(i int) outbox.EventID {
	var id outbox.EventID
	binary.BigEndian.PutUint64(id[:8], a.Seed)
	binary.BigEndian.PutUint64(id[8:], uint64(i)+1)
	return id
}

// rows makes the rows, and returns the poison among them; the zero id where there is none.
func (a Write) rows(maxMessage int) ([]pgfake.Row, outbox.EventID) {
	rng := rand.New(rand.NewPCG(a.Seed, 1))
	pad := strings.Repeat("x", a.Size)
	rows := make([]pgfake.Row, a.Rows)
	for i := range rows {
		r := &rows[i]
		r.EventID = a.eventID(i)
		r.AggregateType = aggregates[rng.IntN(len(aggregates))]
		r.EventType = events[rng.IntN(len(events))]
		r.AggregateID = fmt.Sprintf("k%d", rng.IntN(a.Keys))
		r.Payload = fmt.Appendf(nil, `{"n": %d.%d, "pad": %q}`, a.Seed, i, pad[:rng.IntN(len(pad)+1)])
		r.Deleted = a.Delete
		if rng.IntN(8) == 0 {
			key := "p" + r.AggregateID
			r.PartitionKey = &key
		}
		if rng.IntN(4) == 0 {
			topic := owned[rng.IntN(len(owned))]
			r.Topic = &topic
		}
		switch at := rng.IntN(100); {
		case at < a.Others:
			r.Relation = "audit"
		case at < a.Others+a.Ready:
			r.PublishedAt = time.Now()
		}
	}
	if a.Poison == Sound || a.Rows == 0 {
		return rows, outbox.EventID{}
	}
	r := &rows[rng.IntN(len(rows))]
	r.Relation, r.PublishedAt, r.Deleted = "", time.Time{}, false
	a.Poison.spoil(r, maxMessage)
	return rows, r.EventID
}

func (p Poison) spoil(r *pgfake.Row, maxMessage int) {
	switch p {
	case Unroutable:
		topic := "no topic!"
		r.Topic = &topic
	case TooLarge:
		r.Payload = fmt.Appendf(nil, `{"pad": %q}`, strings.Repeat("x", maxMessage))
	case Huge:
		r.Payload = fmt.Appendf(nil, `{"pad": %q}`, strings.Repeat("x", 5*maxMessage))
	case Unreadable:
		r.Text = map[string][]byte{"event_type": nil}
	}
}

// Erase is an application's own clean-up of the oldest rows, published or not (H12).
type Erase struct{ Rows int }

func (a Erase) String() string {
	return fmt.Sprintf("the application deletes %d rows of the table", a.Rows)
}

func (a Erase) do(w *world) {
	for _, id := range w.someRows(a.Rows) {
		w.pg.DeleteRow(id)
	}
}

// Housekeeping is what a server writes by itself.
type Housekeeping struct{ Noise int }

func (a Housekeeping) String() string {
	return fmt.Sprintf("the server writes %d bytes of WAL and its running transactions", a.Noise)
}

func (a Housekeeping) do(w *world) {
	if a.Noise > 0 {
		w.pg.Noise(a.Noise)
	}
	w.pg.RunningXacts()
	if a.Noise%3 == 0 {
		w.pg.Checkpoint()
	}
}
