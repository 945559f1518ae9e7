package simulation

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"walrelay/outbox"
	"walrelay/sink"
)

// ProduceError makes the broker answer requests with an error instead of taking them.
type ProduceError struct {
	Err   *kerr.Error
	Count int           // requests; 0: all
	For   time.Duration // and no longer than this
}

func (a ProduceError) String() string {
	count := "every"
	if a.Count > 0 {
		count = fmt.Sprint(a.Count)
	}
	return fmt.Sprintf("the brokers answer %s to %s produce request for %v at most", a.Err.Message, count, a.For)
}

func (a ProduceError) do(w *world) {
	if sink.Classify(a.Err) == sink.Fatal {
		w.excuse(exitFatal, a.For+time.Minute)
	}
	if forgetful(a.Err) {
		w.forget()
	}
	w.fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: a.Err, Count: count(a.Count)}, a.For)
}

// forgetful are the answers of a broker that has lost what it knew of a producer, and those that
// reject a batch, since what was in flight behind it is then out of sequence: kgo goes on under a new
// epoch, and what landed without being acknowledged may land again.
func forgetful(err *kerr.Error) bool {
	return !err.Retriable || errors.Is(err, kerr.OutOfOrderSequenceNumber) || errors.Is(err, kerr.UnknownProducerID) || errors.Is(err, kerr.InvalidProducerEpoch)
}

// count is a number of requests as kfake counts them.
func count(n int) int {
	if n == 0 {
		return -1
	}
	return n
}

// AskError makes the broker answer what is not a produce request with an error.
type AskError struct {
	Key   kmsg.Key
	Err   *kerr.Error
	Count int
	For   time.Duration
}

func (a AskError) String() string {
	return fmt.Sprintf("the brokers answer %s to %d %s requests for %v at most", a.Err.Message, a.Count, a.Key.Name(), a.For)
}

func (a AskError) do(w *world) {
	w.fault(kfake.Fault{Keys: []kmsg.Key{a.Key}, Err: a.Err, Count: count(a.Count)}, a.For)
}

func (w *world) fault(f kfake.Fault, last time.Duration) {
	h := w.kafka.Fault(f)
	w.later(last, func() {
		w.mu.Lock()
		w.hits += h.Hits()
		w.mu.Unlock()
		h.Remove()
	})
}

// refuse makes the brokers reject every batch with that event in it, for ever. It lies beside the
// others in a batch, so the innocent must be told from it (H19).
func (w *world) refuse(event outbox.EventID) {
	w.forget()
	id := []byte(event.String())
	w.kafka.Fault(kfake.Fault{
		Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.InvalidRecord, Count: -1,
		When: func(r kmsg.Request) bool {
			req, ok := r.(*kmsg.ProduceRequest)
			if !ok {
				return false
			}
			for _, t := range req.Topics {
				for _, p := range t.Partitions {
					if bytes.Contains(p.Records, id) {
						return true
					}
				}
			}
			return false
		},
	})
}

// forget notes that records may land more often than they were handed over.
func (w *world) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.forgot = true
}

// MoveLeaders gives every partition another leader.
type MoveLeaders struct{}

func (a MoveLeaders) String() string { return "every partition moves to the next broker" }

func (a MoveLeaders) do(w *world) {
	if err := w.lead(w.leader + 1); err != nil {
		w.say(NothingRuns, "a partition could not be moved: %v", err)
	}
}

// SlowKafka delays everything between relays and brokers, acknowledgements above all.
type SlowKafka struct{ Delay, For time.Duration }

func (a SlowKafka) String() string {
	return fmt.Sprintf("Kafka is %v away for %v", a.Delay, a.For)
}

func (a SlowKafka) do(w *world) {
	w.kafkaDelay(a.Delay)
	w.later(a.For, func() { w.kafkaDelay(w.plan.Setup.Delay) })
}

// CutKafka breaks the connections to the brokers once that many bytes more have passed: a request
// that is lost, or an acknowledgement.
type CutKafka struct {
	Bytes    int64
	ToServer bool
}

func (a CutKafka) String() string {
	to := "the relay"
	if a.ToServer {
		to = "the broker"
	}
	return fmt.Sprintf("connections to Kafka break after %d more bytes to %s", a.Bytes, to)
}

func (a CutKafka) do(w *world) { w.cut(w.kafkaLinks(-1), a.Bytes, a.ToServer) }

// StallKafka makes the connections to the brokers half open for a while.
type StallKafka struct{ For time.Duration }

func (a StallKafka) String() string {
	return fmt.Sprintf("nothing passes to or from Kafka for %v", a.For)
}

func (a StallKafka) do(w *world) {
	links := w.kafkaLinks(-1)
	for _, l := range links {
		l.Stall()
	}
	w.later(a.For, func() {
		for _, l := range links {
			l.Resume()
		}
	})
}

// Outage takes one broker, or all (-1), off the network.
type Outage struct {
	Broker int
	For    time.Duration
}

func (a Outage) String() string {
	who := "every broker"
	if a.Broker >= 0 {
		who = fmt.Sprintf("broker %d", a.Broker)
	}
	return fmt.Sprintf("%s is gone for %v", who, a.For)
}

func (a Outage) do(w *world) {
	w.brokers(a.Broker, false)
	w.later(a.For, func() { w.brokers(a.Broker, true) })
}
