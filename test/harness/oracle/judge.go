// Package oracle knows what was committed to an outbox and says which promise was broken when Kafka
// holds something else.
package oracle

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"walrelay/outbox"
	"walrelay/test/harness"
)

// Committed is one outbox row whose transaction is known to have committed.
type Committed struct {
	EventID outbox.EventID
	RowID   int64
	Key     string // the record key that it must have: the partition key, else the aggregate id
}

// Consumed is one record as a consumer saw it.
type Consumed struct {
	EventID   outbox.EventID
	Topic     string
	Key       string
	Partition int32
	Offset    int64
}

// FromRecords reads records that carry an event_id header; others are not ours.
func FromRecords(records []*kgo.Record) []Consumed {
	consumed := make([]Consumed, 0, len(records))
	for _, r := range records {
		if id, ok := harness.EventIDOf(r); ok {
			consumed = append(consumed, Consumed{EventID: id, Topic: r.Topic, Key: string(r.Key), Partition: r.Partition, Offset: r.Offset})
		}
	}
	return consumed
}

// Verdict is what was found, promise by promise (DESIGN, section 1).
type Verdict struct {
	Lost       []Committed // delivered: committed and not on Kafka
	Phantom    []Consumed  // on Kafka and never committed
	Swapped    []Swap      // ordered: first appearances of one key on one topic out of commit order
	Rekeyed    []Consumed  // faithful: under another key than the row's
	Duplicates int         // records beyond the first of their event; how many are allowed depends on the faults
}

// Swap is an event that appeared after one of its key that was committed later.
type Swap struct{ Late, Before Consumed }

// Judge compares. committed must be in commit order for each key, in any order across keys;
// consumed may be in any order, partitions and offsets put it right.
func Judge(committed []Committed, consumed []Consumed) Verdict {
	var v Verdict
	order := make(map[outbox.EventID]int, len(committed))
	for i, c := range committed {
		order[c.EventID] = i
	}
	consumed = slices.Clone(consumed)
	slices.SortStableFunc(consumed, func(a, b Consumed) int {
		return cmp.Or(strings.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Offset, b.Offset))
	})
	type stream struct{ topic, key string }
	newest := map[stream]Consumed{} // of each key on each topic, the latest committed that has appeared
	seen := make(map[outbox.EventID]struct{}, len(committed))
	for _, r := range consumed {
		place, ours := order[r.EventID]
		if !ours {
			v.Phantom = append(v.Phantom, r)
			continue
		}
		if _, again := seen[r.EventID]; again {
			v.Duplicates++
			continue
		}
		seen[r.EventID] = struct{}{}
		if r.Key != committed[place].Key {
			v.Rekeyed = append(v.Rekeyed, r)
		}
		s := stream{r.Topic, r.Key}
		if before, any := newest[s]; any && order[before.EventID] > place {
			v.Swapped = append(v.Swapped, Swap{Late: r, Before: before})
			continue
		}
		newest[s] = r
	}
	for _, c := range committed {
		if _, ok := seen[c.EventID]; !ok {
			v.Lost = append(v.Lost, c)
		}
	}
	return v
}

// Verify judges and fails the test with the names of the promises that were broken. Duplicates are
// counted and left to the caller.
func Verify(t testing.TB, committed []Committed, consumed []Consumed) Verdict {
	t.Helper()
	v := Judge(committed, consumed)
	if n := len(v.Lost); n > 0 {
		t.Errorf("delivered: %d of %d committed events are not on Kafka: %s", n, len(committed),
			some(v.Lost, func(c Committed) string { return fmt.Sprintf("row %d %s key %q", c.RowID, c.EventID, c.Key) }))
	}
	if n := len(v.Swapped); n > 0 {
		t.Errorf("ordered: %d events came after a later one of their key: %s", n,
			some(v.Swapped, func(s Swap) string {
				return fmt.Sprintf("%s key %q: %s at %d/%d after %s at %d/%d", s.Late.Topic, s.Late.Key,
					s.Late.EventID, s.Late.Partition, s.Late.Offset, s.Before.EventID, s.Before.Partition, s.Before.Offset)
			}))
	}
	if n := len(v.Phantom); n > 0 {
		t.Errorf("phantom: %d records are of no committed row: %s", n, some(v.Phantom, place))
	}
	if n := len(v.Rekeyed); n > 0 {
		t.Errorf("faithful: %d records have another key than their row: %s", n, some(v.Rekeyed, place))
	}
	return v
}

func place(r Consumed) string {
	return fmt.Sprintf("%s key %q at %s %d/%d", r.EventID, r.Key, r.Topic, r.Partition, r.Offset)
}

// some names the first five.
func some[T any](all []T, name func(T) string) string {
	const enough = 5
	var names []string
	for _, one := range all[:min(len(all), enough)] {
		names = append(names, name(one))
	}
	if more := len(all) - enough; more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(names, "; ")
}
