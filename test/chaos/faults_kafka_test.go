package chaos

import (
	"math/rand/v2"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"walrelay/test/harness"
	"walrelay/test/integration/fixture"
)

func kafkaFaults() []fault {
	all := []fault{
		{"broker kill -9", always, false, func(w *world, r *rand.Rand) {
			d := w.between(r, 0, 20*time.Second)
			w.inject("broker kill -9", "away for %v and its start", d.Round(time.Millisecond))
			w.f.Kafka.Kill(w.t)
			w.hold(r, d)
			w.f.Kafka.Start(w.t)
		}},
		{"broker restart", long, false, func(w *world, r *rand.Rand) {
			d := w.between(r, 0, 5*time.Second)
			w.inject("broker restart", "in order, away for %v and its start", d.Round(time.Millisecond))
			w.f.Kafka.Stop(w.t)
			w.hold(r, d)
			w.f.Kafka.Start(w.t)
		}},
		{"topic deleted", long, false, deleteTopic},
	}
	return append(all, lineFaults("Kafka", func(w *world) *harness.Proxy { return w.f.Kafka.Proxy })...)
}

// deleteTopic deletes the audit topic. Who makes it again is a matter of luck: the operator, or the relay
// that finds it missing.
func deleteTopic(w *world, r *rand.Rand) {
	byOperator := r.IntN(2) == 0
	w.inject("topic deleted", "made again by the operator: %v", byOperator)
	admin := kadm.NewClient(w.f.Kafka.Around(w.t))
	ctx := fixture.Within(w.t, fixture.Limit)
	deleted, err := admin.DeleteTopic(ctx, w.auditTopic())
	if err == nil {
		err = deleted.Err
	}
	if err != nil {
		w.t.Fatalf("delete topic %s: %v", w.auditTopic(), err)
	}
	w.stopAudit()
	w.ledger.deleted(w.auditTopic())
	w.life++
	if byOperator {
		w.wait(time.Duration(r.Int64N(int64(2 * time.Second))))
		if _, err := admin.CreateTopic(ctx, 3, 1, nil, w.auditTopic()); err != nil {
			w.log("%-28s the relay was first to make the topic again: %v", "", err)
		}
	}
	w.readAudit()
}
