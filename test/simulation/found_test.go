package simulation

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"walrelay/checkpoint"
)

// plain is a setup with nothing in it that is slow or rare.
func plain(after checkpoint.AfterPublish) Setup {
	return Setup{After: after, Major: 17, Brokers: 1, Partitions: 1, Relays: 1, MaxMessage: 16 << 10, Status: time.Second, Buffer: 256 << 10}
}

// The histories below once broke a promise. Each is what was left of a seed after shrinking.
func TestFound(t *testing.T) {
	slow := plain(checkpoint.Mark)
	slow.MaxMessage, slow.Delay, slow.Buffer = 1_000_012, 30*time.Millisecond, 4<<10
	near := plain(checkpoint.Mark)
	near.Delay, near.Buffer = 5*time.Millisecond, 4<<10
	for name, p := range map[string]Plan{
		"a producer id is refused once": {Setup: plain(checkpoint.Mark), Steps: []Step{
			{time.Second, AskError{kmsg.InitProducerID, kerr.UnknownServerError, 3, 2 * time.Second}},
			{time.Second + 100*time.Millisecond, Write{Seed: 1, Rows: 1, Keys: 1}},
		}},
		"an event is given up, and read again before the server was told": {Setup: plain(checkpoint.Delete), Steps: []Step{
			{time.Second, Write{Seed: 1, Rows: 4, Keys: 4, Poison: Unreadable}},
			{2 * time.Second, Write{Seed: 2, Rows: 1, Keys: 1, Poison: Refused}},
		}},
		"a row takes longer to arrive than wal_sender_timeout": {Setup: slow, Steps: []Step{
			{time.Second, Write{Seed: 1, Rows: 1, Keys: 1, Poison: Huge}},
		}},
		"a standby is promoted that has the transaction and not its settle": {Setup: plain(checkpoint.Mark), Steps: []Step{
			{time.Second, Write{Seed: 1, Rows: 2, Keys: 1}},
			{4 * time.Second, Promote{Txns: 1}},
		}},
		"the same where settled rows are deleted": {Setup: plain(checkpoint.Delete), Steps: []Step{
			{time.Second, Write{Seed: 1, Rows: 2, Keys: 1}},
			{4 * time.Second, Promote{Txns: 1}},
		}},
		"an event is rejected while a row arrives that is thrown away as it is read": {Setup: near, Steps: []Step{
			{time.Second, Write{Seed: 1, Rows: 1, Keys: 1}},
			{3*time.Second - time.Millisecond, ProduceError{kerr.InvalidRecord, 1, time.Second}},
			{3 * time.Second, Write{Seed: 2, Rows: 1, Keys: 1}},
			{3*time.Second + time.Millisecond, Write{Seed: 3, Rows: 1, Keys: 1, Poison: Huge}},
		}},
		"a SIGTERM comes while such a row arrives": {Setup: near, Steps: []Step{
			{time.Second, Write{Seed: 1, Rows: 1, Keys: 1, Poison: Huge}},
			{time.Second + 100*time.Millisecond, Term{0, time.Minute, time.Second}},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for range tries {
				if r, _ := history(t, p); len(r.Broken) > 0 {
					t.Fatalf("%v\n%s\n%s", r.Broken, r.Plan, r.Log)
				}
			}
		})
	}
}
