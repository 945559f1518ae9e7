package checkpoint

import "github.com/jackc/pglogrepl"

// transaction is one that has rows of ours in the ring, and the empty ones that followed it.
type transaction struct {
	final    pglogrepl.LSN // start of its commit record, from Begin
	end      pglogrepl.LSN // end of its commit record
	upTo     pglogrepl.LSN // end of the last empty transaction behind it; end where there was none
	last     uint64        // token behind its last row; it begins where the one before it ends
	xid      uint32
	received bool
}

// queue holds the closed transactions that are not settled, oldest first, in a ring of fixed size. The
// first resolved of them are wholly resolved.
type queue struct {
	ring     []transaction
	head     int
	count    int
	resolved int
}

// newQueue has a place for every row and one for an empty transaction at the head, which cannot leave while
// rows are held.
func newQueue(rows int) queue { return queue{ring: make([]transaction, rows+1)} }

func (q *queue) len() int             { return q.count }
func (q *queue) full() bool           { return q.count == len(q.ring) }
func (q *queue) tail() *transaction   { return q.at(q.count - 1) }
func (q *queue) push(txn transaction) { q.count++; *q.tail() = txn }

func (q *queue) at(i int) *transaction {
	i += q.head
	if i >= len(q.ring) {
		i -= len(q.ring)
	}
	return &q.ring[i]
}

func (q *queue) pop() {
	q.count--
	q.resolved--
	if q.head++; q.head == len(q.ring) {
		q.head = 0
	}
}
