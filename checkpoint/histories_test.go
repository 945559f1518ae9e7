package checkpoint

import "testing"

func TestH01PositionWaitsForARowThatIsNotVisible(t *testing.T) {
	runStory(t, `
		new session of 8 rows start 0/10
		begin 7 final 0/100
		row a
		row b
		commit 0/110
		begin 8 final 0/120
		row c
		commit 0/130
		ack b
		ack a
		ack c
		expect pending a b c
		# The writer of a and b has not left ProcArray: the mark of a found nothing. c could be marked.
		settle b
		settle c
		expect confirmable 0/10
		expect pending a
		# Kafka has all three all the same; a new session does not hand them over again.
		expect carried 8 0/130
		# A keepalive says that the server has nothing more. It confirms nothing while a is not settled.
		keepalive 0/200
		expect confirmable 0/10
		settle a
		expect confirmable 0/130
		keepalive 0/200
		expect confirmable 0/200
	`)
}

func TestH02NoEarlyAckBehindARejectedRow(t *testing.T) {
	runStory(t, `
		new session of 8 rows keep start 0/10
		begin 7 final 0/100
		row e1
		commit 0/110
		begin 8 final 0/120
		row e2
		commit 0/130
		# e1 was rejected and e2 landed: nothing is confirmable, and the next session begins with e1.
		ack e2
		expect confirmable 0/10
		expect in flight 1
		expect carried 0 0/0
		expect no part
	`)
}

func TestH04NothingIsConfirmedBeforeTheCarriedTransactionHasCome(t *testing.T) {
	runStory(t, `
		new session of 8 rows start 0/10
		begin 7 final 0/100
		row a
		commit 0/110
		begin 8 final 0/120
		row b
		commit 0/130
		begin 9 final 0/140
		row c
		row d
		ack a
		ack b
		ack c
		settle a
		expect confirmable 0/110
		expect carried 8 0/130
		expect part 9 0/140 rows 1 settled 0

		# The slot went back to 0/10. All up to 8 must come again before anything is confirmed.
		new session of 8 rows from carried start 0/10
		hold
		begin 7 final 0/100
		skip 1                      # it is settled: 0/110
		commit 0/110
		keepalive 0/115
		expect confirmable 0/10
		begin 8 final 0/120
		hold b
		expect nothing pending
		commit 0/130
		expect confirmable 0/10
		expect carried 8 0/130
		release
		expect confirmable 0/110
		expect pending b            # it was acknowledged in the session before; who knows whether it was settled
		begin 9 final 0/140
		repeat c
		row d
		commit 0/150
		ack d
		expect pending b c d
		settle b
		settle c
		settle d
		expect confirmable 0/150
		expect carried 9 0/150
		expect no part
	`)
}

func TestH15PartSurvivesSessionsThatKeepDying(t *testing.T) {
	runStory(t, `
		new session of 4 rows start 0/10
		begin 7 final 0/100
		rows 3 of a
		skip 1
		row b
		ack a0
		ack a1
		ack b
		settle a0
		expect part 7 0/100 rows 2 settled 1

		# This session dies before it is as far.
		new session of 4 rows from carried start 0/10
		expect part 7 0/100 rows 2 settled 1
		begin 7 final 0/100
		skip 1
		expect part 7 0/100 rows 2 settled 1

		# This one gets further.
		new session of 4 rows from carried start 0/10
		begin 7 final 0/100
		skip 1
		repeat a1
		row a2
		skip 1
		row b
		ack a2
		expect part 7 0/100 rows 4 settled 1
		settle a1
		settle a2
		expect part 7 0/100 rows 4 settled 4
		ack b
		commit 0/110
		expect carried 7 0/110
		expect no part
		expect confirmable 0/10
		settle b
		expect confirmable 0/110

		# The slot lost what was confirmed. The transaction is settled: nothing of it takes a slot.
		new session of 4 rows from carried start 0/10
		expect settled 0/110
		hold
		begin 7 final 0/100
		skip 5
		commit 0/110
		expect confirmable 0/10
		release
		expect confirmable 0/110
		expect carried 7 0/110
	`)
}

// The last rows of a transaction larger than the tracker are acknowledged and not settled when the session ends, and
// the slot has not got so far. What is settled already is not held, or the transaction would never fit.
func TestH15AHugeTransactionIsNotHeldWhole(t *testing.T) {
	runStory(t, `
		new session of 2 rows start 0/10
		begin 7 final 0/100
		row a
		ack a
		settle a
		skip 1
		row b
		ack b
		settle b
		row c
		row d
		commit 0/110
		ack c
		ack d
		expect carried 7 0/110
		expect settled 0/10
		expect settled rows 3 of 7 0/100

		new session of 2 rows from carried start 0/10
		hold
		begin 7 final 0/100
		skip 3
		hold c
		hold d
		expect room 0
		expect settled rows 3 of 7 0/100
		release
		commit 0/110
		expect pending c d
		settle c
		settle d
		expect confirmable 0/110
		expect settled rows 0 of 8 0/110
	`)
}

func TestH17ALockedTableStopsTheSourceAndLosesNothing(t *testing.T) {
	runStory(t, `
		new session of 4 rows start 0/10
		begin 7 final 0/100
		row a
		commit 0/110
		begin 8 final 0/120
		rows 3 of b
		ack a
		ack b0
		ack b1
		ack b2
		expect in flight 0
		expect room 0               # nothing can be settled: the source stops reading, and goes on with its status
		expect confirmable 0/10
		expect pending a b0 b1 b2
		settle b0
		settle b1
		expect room 0               # the oldest row keeps its slot
		settle a
		expect room 3
		expect confirmable 0/110
		ack again a
		row c
		commit 0/130
		ack c
		settle b2
		settle c
		expect confirmable 0/130
		expect room 4
	`)
}

func TestH17EmptyTransactionsCoalesceBehindAStuckAck(t *testing.T) {
	runStory(t, `
		new session of 1 rows keep start 0/10
		begin 7 final 0/100
		row a
		commit 0/110
		begin 8 final 0/120
		commit 0/130
		begin 9 final 0/140
		skip 5                      # rows of another table
		commit 0/150
		expect confirmable 0/10
		ack a
		expect confirmable 0/150
		expect carried 7 0/110      # the others may not come again
	`)
}
