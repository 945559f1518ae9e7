package histories

import (
	"testing"

	"walrelay/test/harness"
	"walrelay/test/integration/fixture"
)

// H25: the slot is lost while no relay runs. The next one says why, and what to type is enough.
func TestH25SlotLostWhileTheRelayIsAway(t *testing.T) {
	t.Parallel()
	f := fixture.New(t, fixture.On(smallWAL(t)))
	w := f.Writer(t)
	r := f.Relay(t).Ready(t)
	commit(t, w, order("a"))
	f.Settled(t)
	r.Stop(t)
	commit(t, w, order("b"))
	loseSlot(t, f)

	mode := refusal(t, f.Relay(t).Wait(t), `slot "`+f.Slot+`" is lost`, f.Slot)
	contains(t, mode.Remedy, "SELECT pg_drop_replication_slot('"+f.Slot+"')", `"published_at" IS NULL`)
	f.DB.Exec(t, "SELECT pg_drop_replication_slot('"+f.Slot+"')")
	// The row that the slot would have sent is still there: no relay passes over it in silence.
	refusal(t, f.Relay(t).Wait(t), "already holds 1 unpublished row")
}

// H25: a slot that is lost under a streaming relay ends its connection with 57P01, as an administrator
// would; only the next session can tell.
func TestH25SlotLostUnderTheStream(t *testing.T) {
	t.Parallel()
	f := fixture.New(t, fixture.On(smallWAL(t)))
	w := f.Writer(t)
	r := f.Relay(t).Ready(t)
	unmarkable(t, f)
	commit(t, w, order("a"))
	f.Events(t, 1) // on Kafka, and its position cannot be confirmed
	loseSlot(t, f)
	refusal(t, r.Wait(t), `slot "`+f.Slot+`" is lost`)
	contains(t, r.Log(), "reason=postgres_57P01")
}

// smallWAL is a server that takes a slot's WAL away after the smallest amount that it knows.
func smallWAL(t *testing.T) *harness.Server {
	t.Helper()
	return harness.Fresh(t, harness.NoSync(), harness.Setting("max_slot_wal_keep_size", "1MB"),
		harness.Setting("min_wal_size", "32MB"), harness.Setting("max_wal_size", "32MB"))
}

// loseSlot writes WAL until the slot is lost.
func loseSlot(t *testing.T, f *fixture.Fixture) {
	t.Helper()
	eventually(t, "the slot is lost", func() bool {
		f.DB.Exec(t, "SELECT pg_logical_emit_message(false, 'fill', repeat('x', 1000000))")
		f.DB.Exec(t, "SELECT pg_switch_wal()")
		f.DB.Exec(t, "CHECKPOINT")
		return f.DB.Text(t, "SELECT wal_status FROM pg_replication_slots WHERE slot_name = '"+f.Slot+"'") == "lost"
	})
}
