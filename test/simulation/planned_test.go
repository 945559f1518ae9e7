package simulation

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"walrelay/checkpoint"
)

// Histories that seeds come by too rarely. In none of them has a relay a reason to repeat an
// event or to halt at one.
func TestPlanned(t *testing.T) {
	warm := Step{time.Second, Write{Seed: 1, Rows: 200, Keys: 5}} // every topic is known from then on
	for name, p := range map[string]Plan{
		"the stream breaks while Kafka has not answered": {Setup: plain(checkpoint.Mark), Steps: []Step{warm,
			{5 * time.Second, SlowKafka{2 * time.Second, time.Minute}},
			{6 * time.Second, Write{Seed: 2, Rows: 50, Keys: 5}},
			{7 * time.Second, Terminate{Replication: true}},
		}},
		"SIGTERM while Kafka has not answered": {Setup: plain(checkpoint.Mark), Steps: []Step{warm,
			{5 * time.Second, SlowKafka{2 * time.Second, time.Minute}},
			{6 * time.Second, Write{Seed: 2, Rows: 50, Keys: 5}},
			{7 * time.Second, Term{0, time.Minute, time.Second}},
		}},
		"a backlog of more bytes than the window while Kafka is gone": {Setup: plain(checkpoint.Mark), Steps: []Step{warm,
			{5 * time.Second, Outage{-1, time.Minute}},
			{6 * time.Second, Write{Seed: 2, Rows: 12_000, Size: 3000, Keys: 5}},
		}},
		"a broker rejects a batch, and nothing in it is wrong": {Setup: plain(checkpoint.Mark), Steps: []Step{warm,
			{4 * time.Second, ProduceError{kerr.InvalidRecord, 1, 10 * time.Second}},
			{5 * time.Second, Write{Seed: 2, Rows: 50, Keys: 5}},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, ok := history(t, p)
			if ok && (len(r.Broken) > 0 || r.Repeated > 0 || r.Poison > 0) {
				t.Errorf("%d repeated, %d exits for a poison row; %v\n%s\n%s", r.Repeated, r.Poison, r.Broken, r.Plan, r.Log)
			}
		})
	}
}
