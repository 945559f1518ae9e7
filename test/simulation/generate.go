package simulation

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"walrelay/checkpoint"
)

// Generate makes the plan of a seed. The same seed gives the same plan for as long as this file stays
// as it is.
func Generate(seed uint64) Plan {
	g := &generator{rand.New(rand.NewPCG(seed, 0x77616c72656c6179))}
	p := Plan{Seed: seed, Setup: g.setup()}
	length := g.between(3*time.Second, 40*time.Second)
	add := func(a Action) {
		p.Steps = append(p.Steps, Step{g.between(0, length).Truncate(time.Millisecond), a})
	}
	for i := range 3 + g.skewed(50) {
		w := g.write(seed<<20|uint64(i), p.Setup)
		if g.one(3) { // a burst: as fast as writers can
			at := g.between(0, length).Truncate(time.Millisecond)
			for j := range 2 + g.skewed(15) {
				w := g.write(seed<<20|uint64(i)<<10|uint64(j)|1<<19, p.Setup)
				p.Steps = append(p.Steps, Step{at + time.Duration(j)*time.Millisecond, w})
			}
			continue
		}
		add(w)
	}
	if g.one(8) {
		for range 1 + g.IntN(2) {
			w := g.write(seed<<20|1<<18|uint64(g.IntN(1<<10)), p.Setup)
			w.Rows, w.How, w.Delete = 1+g.IntN(20), Plain, false
			w.Poison = Unroutable + Poison(g.IntN(int(Refused)))
			add(w)
		}
	}
	for range g.IntN(3) {
		add(Housekeeping{Noise: g.skewed(100_000)})
	}
	faults := g.theme()
	for range g.skewed(14) {
		add(pick(g, faults)(g))
	}
	slices.SortStableFunc(p.Steps, func(a, b Step) int { return cmp.Compare(a.At, b.At) })
	return p
}

type generator struct{ *rand.Rand }

func (g *generator) one(in int) bool { return g.IntN(in) == 0 }

func (g *generator) between(from, to time.Duration) time.Duration {
	return from + time.Duration(g.Int64N(int64(to-from)+1))
}

// skewed is from 0 to n, mostly small.
func (g *generator) skewed(n int) int { return g.IntN(1 + g.IntN(n+1)) }

func pick[T any](g *generator, of []T) T { return of[g.IntN(len(of))] }

func (g *generator) setup() Setup {
	s := Setup{
		After:      pick(g, []checkpoint.AfterPublish{checkpoint.Mark, checkpoint.Mark, checkpoint.Mark, checkpoint.Delete, checkpoint.Delete, checkpoint.Keep}),
		Major:      14 + g.IntN(5),
		Brokers:    1 + g.IntN(3),
		Partitions: 1 + g.IntN(4),
		Relays:     1,
		MaxMessage: 16 << 10,
		Status:     pick(g, []time.Duration{time.Second, time.Second, time.Second, 100 * time.Millisecond, 5 * time.Second}),
		Delay:      pick(g, []time.Duration{0, 0, 0, time.Millisecond, 5 * time.Millisecond, 30 * time.Millisecond}),
		Buffer:     pick(g, []int{256 << 10, 256 << 10, 64 << 10, 4 << 10}),
		Slot:       g.one(2),
	}
	if g.one(5) {
		s.Relays = 2
	}
	if g.one(8) {
		// A full request must get through within kgo's write time-out of ten seconds.
		s.MaxMessage, s.Buffer = 1_000_012, 256<<10
	}
	if g.one(3) {
		s.Linger = g.between(0, 2*time.Second).Truncate(time.Millisecond)
	}
	return s
}

func (g *generator) write(seed uint64, s Setup) Write {
	w := Write{Seed: seed, Keys: 1 + g.skewed(20), Size: g.IntN(60)}
	switch at := g.IntN(1000); {
	case at < 600:
		w.Rows = 1 + g.IntN(5)
	case at < 860:
		w.Rows = g.IntN(50)
	case at < 980:
		w.Rows = 50 + g.IntN(450)
	case at < 997:
		w.Rows = 500 + g.skewed(4500)
	default:
		w.Rows = 5000 + g.skewed(45_000)
	}
	switch {
	case g.one(10):
		w.Size = g.IntN(2000)
	case g.one(25):
		w.Size = s.MaxMessage * 3 / 4
	}
	w.Rows = min(w.Rows, 1+(12<<20)/(1+w.Size)) // six windows
	if g.one(5) {
		w.Others = g.IntN(100)
	}
	if g.one(8) {
		w.Ready = g.IntN(60)
	}
	if g.one(5) {
		w.How = Hidden + How(g.IntN(int(Foreign)))
	}
	w.Delete = w.How == Plain && g.one(30)
	return w
}

// fault makes one fault.
type fault func(*generator) Action

// theme is what breaks in a history: everything, or one side, so that faults of one kind meet.
func (g *generator) theme() []fault {
	switch g.IntN(5) {
	case 0:
		return kafkaFaults
	case 1:
		return postgresFaults
	case 2:
		return slices.Concat(relayFaults, kafkaFaults)
	}
	return slices.Concat(kafkaFaults, postgresFaults, relayFaults, relayFaults)
}

var produceErrors = []*kerr.Error{
	kerr.NotEnoughReplicas, kerr.NotLeaderForPartition, kerr.UnknownTopicOrPartition, kerr.KafkaStorageError, kerr.ThrottlingQuotaExceeded,
	kerr.LeaderNotAvailable, kerr.OutOfOrderSequenceNumber, kerr.UnknownProducerID, kerr.InvalidProducerEpoch,
	kerr.RequestTimedOut, kerr.NotEnoughReplicasAfterAppend,
	kerr.MessageTooLarge, kerr.TopicAuthorizationFailed, kerr.InvalidRecord, kerr.PolicyViolation, kerr.InvalidTopicException,
	kerr.RecordListTooLarge, kerr.UnknownServerError, kerr.CorruptMessage, kerr.ClusterAuthorizationFailed,
}

var askErrors = []AskError{
	{Key: kmsg.Metadata, Err: kerr.LeaderNotAvailable}, {Key: kmsg.Metadata, Err: kerr.UnknownTopicOrPartition}, {Key: kmsg.Metadata, Err: kerr.TopicAuthorizationFailed},
	{Key: kmsg.CreateTopics, Err: kerr.NotController}, {Key: kmsg.CreateTopics, Err: kerr.RequestTimedOut}, {Key: kmsg.CreateTopics, Err: kerr.PolicyViolation}, {Key: kmsg.CreateTopics, Err: kerr.TopicAuthorizationFailed},
	{Key: kmsg.DescribeConfigs, Err: kerr.TopicAuthorizationFailed}, {Key: kmsg.DescribeConfigs, Err: kerr.UnknownServerError},
	{Key: kmsg.InitProducerID, Err: kerr.CoordinatorNotAvailable}, {Key: kmsg.InitProducerID, Err: kerr.CoordinatorLoadInProgress}, {Key: kmsg.InitProducerID, Err: kerr.UnknownServerError},
}

var kafkaFaults = []fault{
	func(g *generator) Action {
		return ProduceError{pick(g, produceErrors), 1 + g.skewed(4), g.between(time.Second, 10*time.Second)}
	},
	func(g *generator) Action {
		return ProduceError{pick(g, produceErrors), 1, 10 * time.Second}
	},
	func(g *generator) Action {
		return ProduceError{pick(g, produceErrors), 0, g.between(100*time.Millisecond, 5*time.Second)}
	},
	func(g *generator) Action {
		a := pick(g, askErrors)
		a.Count, a.For = 1+g.IntN(3), g.between(time.Second, 10*time.Second)
		return a
	},
	func(*generator) Action { return MoveLeaders{} },
	func(g *generator) Action {
		return SlowKafka{g.between(time.Millisecond, 2*time.Second), g.between(100*time.Millisecond, 10*time.Second)}
	},
	func(g *generator) Action { return CutKafka{int64(g.skewed(20_000)), g.one(2)} },
	func(g *generator) Action { return StallKafka{g.between(100*time.Millisecond, 25*time.Second)} },
	func(g *generator) Action { return Outage{-1, g.between(100*time.Millisecond, 20*time.Second)} },
	func(g *generator) Action { return Outage{g.IntN(3), g.between(100*time.Millisecond, 20*time.Second)} },
}

var postgresFaults = []fault{
	func(g *generator) Action { return CutPostgres{int64(g.skewed(50_000)), false} },
	func(g *generator) Action { return CutPostgres{int64(g.skewed(2_000)), true} },
	func(g *generator) Action {
		return StallPostgres{g.IntN(2), g.between(100*time.Millisecond, 40*time.Second)}
	},
	func(g *generator) Action { return Terminate{g.one(2)} },
	func(g *generator) Action {
		return Crash{g.between(0, 5*time.Second), g.between(0, 3*time.Second)}
	},
	func(g *generator) Action {
		return Stop{g.between(time.Second, 30*time.Second), g.between(0, 5*time.Second)}
	},
	func(g *generator) Action {
		if g.one(2) {
			return Restore{g.between(0, 5*time.Second), g.between(0, 3*time.Second)}
		}
		return Promote{g.skewed(8), g.between(0, 3*time.Second)}
	},
	func(g *generator) Action {
		return LockRows{1 + g.IntN(5), g.between(100*time.Millisecond, 10*time.Second)}
	},
	func(g *generator) Action { return LockTable{g.between(100*time.Millisecond, 10*time.Second)} },
	func(g *generator) Action { return HoldSlot{g.between(100*time.Millisecond, 10*time.Second)} },
	func(g *generator) Action {
		if g.one(3) {
			return FailStream{g.between(10*time.Millisecond, 5*time.Second)}
		}
		return AddColumn{"extra"}
	},
	func(g *generator) Action { return Erase{1 + g.IntN(5)} },
	func(g *generator) Action { return Housekeeping{g.skewed(50_000)} },
}

var relayFaults = []fault{
	func(g *generator) Action { return Kill{g.IntN(2), g.between(0, 3*time.Second)} },
	func(g *generator) Action { return Kill{g.IntN(2), g.between(0, 3*time.Second)} },
	func(g *generator) Action {
		return Term{g.IntN(2), g.between(0, 12*time.Second), g.between(0, 3*time.Second)}
	},
}
