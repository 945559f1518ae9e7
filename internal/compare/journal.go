package compare

import (
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"walrelay/outbox"
)

// station is a place that an event comes by, in order.
type station int

const (
	inserted  station = iota // the transaction begins
	committed                // COMMIT has returned to the writer
	received                 // the relay has it
	acked                    // Kafka has acknowledged it to the relay
	consumed                 // the consumer has it
	stations
)

// journal is when each event came by each station. Writer, relay and consumer race: a consumer may have
// the record before COMMIT has returned.
type journal struct {
	mu struct {
		sync.Mutex
		events  map[outbox.EventID]*[stations]time.Time
		waiting int // events that are committed and not consumed
	}
	news chan struct{} // nudged when nothing is waited for
}

func newJournal() *journal {
	j := &journal{news: make(chan struct{}, 1)}
	j.mu.events = make(map[outbox.EventID]*[stations]time.Time)
	return j
}

// expect notes the beginning of a transaction: from here on its events are waited for.
func (j *journal) expect(ids []outbox.EventID, at time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, id := range ids {
		j.mu.events[id] = &[stations]time.Time{inserted: at}
	}
	j.mu.waiting += len(ids)
}

// note takes the first time that an event comes by; events of nobody are passed over.
func (j *journal) note(id outbox.EventID, s station, at time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	times := j.mu.events[id]
	if times == nil || !times[s].IsZero() {
		return
	}
	times[s] = at
	if s == consumed {
		if j.mu.waiting--; j.mu.waiting == 0 {
			select {
			case j.news <- struct{}{}:
			default:
			}
		}
	}
}

func (j *journal) waiting() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.mu.waiting
}

func (j *journal) count() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.mu.events)
}

// span is the way between two stations.
type span struct {
	name     string
	from, to station
}

// spans are what is reported; the first is what a consumer waits for.
var spans = []span{
	{"commit → consumer", committed, consumed},
	{"insert → commit", inserted, committed},
	{"commit → relay", committed, received},
	{"relay → acknowledged", received, acked},
	{"acknowledged → consumer", acked, consumed},
}

// histogram is in microseconds, from 1 to an hour, with three digits.
func histogram() *hdrhistogram.Histogram {
	return hdrhistogram.New(1, int64(time.Hour/time.Microsecond), 3)
}

// histograms has one for each span, of the events that began at or after from and came through whole.
// What is negative, since the COMMIT returned later than the event arrived, counts as a microsecond.
func (j *journal) histograms(from time.Time) []*hdrhistogram.Histogram {
	all := make([]*hdrhistogram.Histogram, len(spans))
	for i := range all {
		all[i] = histogram()
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, times := range j.mu.events {
		if times[inserted].Before(from) {
			continue
		}
		for i, s := range spans {
			if times[s.from].IsZero() || times[s.to].IsZero() {
				continue
			}
			_ = all[i].RecordValue(max(1, times[s.to].Sub(times[s.from]).Microseconds())) // below an hour, as the run is
		}
	}
	return all
}
