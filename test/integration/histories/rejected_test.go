package histories

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"

	"walrelay/internal/source"
	"walrelay/test/harness"
	"walrelay/test/harness/oracle"
	"walrelay/test/integration/fixture"
)

// H2, H19: the broker rejects a whole batch for one of its records. The innocent must get through and
// the guilty one must be known by name; given up by an operator, it holds up nothing any more.
func TestH19OneRecordOfABatchIsRejected(t *testing.T) { eachMode(t, oneRecordIsRejected) }

func oneRecordIsRejected(t *testing.T, mode string) {
	f := fixture.New(t, fixture.Set("KAFKA_COMPRESSION", "none"), fixture.Set("RELAY_MODE", mode))
	w := f.Writer(t)
	kafka := harness.NewProxy(t)
	r := f.Relay(t, f.KafkaThrough(kafka)).Ready(t)
	commit(t, w, order("first"))
	topic := f.Events(t, 1)[0].Topic

	// The relay has asked for the topic's limit already: only the broker knows better from here on.
	limit(t, f, topic, "4000")
	batch := make([]oracle.Event, 200)
	for i := range batch {
		batch[i] = order("k" + string(rune('0'+i%10)))
	}
	const at = 100
	batch[at] = order("guilty")
	batch[at].Payload = `"` + strings.Repeat("x", 5000) + `"`
	kafka.Pause() // what is handed over meanwhile is one batch
	commit(t, w, batch...)
	eventually(t, "all of them are handed over", func() bool { return r.Status().InFlight == len(batch) })
	kafka.Resume()
	guilty := w.Committed()[1+at]

	named(t, r.Wait(t), guilty)
	contains(t, r.Log(), "kafka rejected a batch")
	named(t, f.Relay(t).Wait(t), guilty) // and again, as long as nobody has given it up
	before := w.Committed()[:1+at]
	f.Events(t, len(before))
	f.DB.Eventually(fixture.Within(t, fixture.Limit), t, fmt.Sprint(len(before)), "SELECT count(*) FROM outbox WHERE published_at IS NOT NULL")

	f.DB.Exec(t, "UPDATE outbox SET published_at = now() WHERE event_id = '"+guilty.EventID.String()+"'")
	r = f.Relay(t).Ready(t)
	commit(t, w, order("last"))
	f.Settled(t)
	if mode == "wal" { // a poll does not come by what is marked
		if n := r.Metric(t, "walrelay_events_given_up_total"); n != 1 {
			t.Errorf("%v events are counted as given up, want 1", n)
		}
		contains(t, r.Log(), "event given up", guilty.EventID.String())
	}
	r.Stop(t)

	var innocent []oracle.Committed
	for _, c := range w.Committed() {
		if c != guilty {
			innocent = append(innocent, c)
		}
	}
	// A record that the broker itself rejects can be overtaken (the stated exception): not the order,
	// but that nothing is lost and nothing made up is judged here.
	records, err := f.Consumer(t).Events(fixture.Within(t, fixture.Limit), len(innocent))
	if err != nil {
		t.Error(err)
	}
	v := oracle.Judge(innocent, oracle.FromRecords(records))
	if len(v.Lost) > 0 || len(v.Phantom) > 0 {
		t.Errorf("delivered: %d of %d are lost, %d records are of no innocent row", len(v.Lost), len(innocent), len(v.Phantom))
	}
}

// H19: a batch is too large for the broker and no record of it is. Sent again one at a time they all
// get through, and the relay says when that is over.
func TestH19RejectedBatchOfInnocents(t *testing.T) { eachMode(t, innocentsAreRejected) }

func innocentsAreRejected(t *testing.T, mode string) {
	f := fixture.New(t, fixture.Set("KAFKA_COMPRESSION", "none"), fixture.Set("RELAY_MODE", mode))
	w := f.Writer(t)
	kafka := harness.NewProxy(t)
	r := f.Relay(t, f.KafkaThrough(kafka)).Ready(t)
	commit(t, w, order("first"))
	limit(t, f, f.Events(t, 1)[0].Topic, "2000")
	batch := make([]oracle.Event, 200)
	for i := range batch {
		batch[i] = order("k" + string(rune('0'+i%10)))
	}
	kafka.Pause() // what is handed over meanwhile is one batch
	commit(t, w, batch...)
	eventually(t, "all of them are handed over", func() bool { return r.Status().InFlight == len(batch) })
	kafka.Resume()
	f.Settled(t)
	commit(t, w, order("last"))
	f.Settled(t)
	contains(t, r.Log(), "kafka rejected a batch", "every event of the rejected batch is published")
	r.Stop(t)
	if v := oracle.Judge(w.Committed(), oracle.FromRecords(f.Events(t, 2+len(batch)))); len(v.Lost) > 0 || len(v.Phantom) > 0 {
		t.Errorf("delivered: %d are lost, %d records are of no row", len(v.Lost), len(v.Phantom)) // order: see above
	}
}

// eachMode runs the test with a relay that streams, and with one that polls.
func eachMode(t *testing.T, test func(t *testing.T, mode string)) {
	t.Helper()
	t.Parallel()
	for _, mode := range []string{"wal", "polling"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			test(t, mode)
		})
	}
}

// named fails unless the relay ended because of that event.
func named(t *testing.T, err error, row oracle.Committed) {
	t.Helper()
	var poison *source.PoisonError
	if !errors.As(err, &poison) {
		t.Fatalf("the relay ended with %v, want a PoisonError", err)
	}
	if poison.EventID != row.EventID || poison.RowID != row.RowID {
		t.Errorf("the relay ended at row %d event %s, the guilty one is row %d event %s", poison.RowID, poison.EventID, row.RowID, row.EventID)
	}
	contains(t, err.Error(), row.EventID.String())
}

// limit sets the topic's max.message.bytes and waits until the broker says so.
func limit(t *testing.T, f *fixture.Fixture, topic, bytes string) {
	t.Helper()
	const name = "max.message.bytes"
	ctx := fixture.Within(t, fixture.Limit)
	admin := kadm.NewClient(f.Kafka.Client(t))
	if _, err := admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: name, Value: &bytes}}, topic); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the topic's limit is "+bytes, func() bool {
		configs, err := admin.DescribeTopicConfigs(ctx, topic)
		if err != nil {
			t.Fatal(err)
		}
		for _, config := range configs {
			for _, c := range config.Configs {
				if c.Key == name && c.MaybeValue() == bytes {
					return true
				}
			}
		}
		return false
	})
}
