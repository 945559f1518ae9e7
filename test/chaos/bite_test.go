package chaos

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"walrelay/outbox"
	"walrelay/test/harness/oracle"
)

// The run's own memory has to notice what it is there for. These are records that a relay would leave
// which breaks a promise; no server is needed.

const service = "shop"

// told is a ledger that knows of n committed events of one key.
func told(t *testing.T, n int) (*ledger, []oracle.Committed) {
	t.Helper()
	l, err := newLedger(filepath.Join(t.TempDir(), "journal"), service)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.file.Close() })
	rows := make([]oracle.Committed, n)
	for i := range rows {
		rows[i] = oracle.Committed{EventID: outbox.EventID{byte(i + 1)}, RowID: int64(i + 1), Key: "k"}
		one := rows[i : i+1]
		if err := l.Committing([]oracle.Event{{EventType: "OrderPlaced", Payload: "{}", Headers: `{"trace": "x"}`}}, one); err != nil {
			t.Fatal(err)
		}
		if err := l.Ended(one, oracle.Outcome{Committed: true, Unanswered: i == 0}); err != nil {
			t.Fatal(err)
		}
	}
	return l, rows
}

// arrives is the record of a row as it should be.
func arrives(row oracle.Committed, offset int64, at time.Time) *kgo.Record {
	return &kgo.Record{
		Topic: service + ".order.placed", Key: []byte(row.Key), Value: []byte("{}"), Offset: offset, Timestamp: at,
		Headers: []kgo.RecordHeader{{Key: "event_id", Value: []byte(row.EventID.String())}, {Key: "trace", Value: []byte("x")}},
	}
}

func TestMissingEventIsNoticed(t *testing.T) {
	l, rows := told(t, 3)
	l.read(arrives(rows[0], 0, time.Now()), 0)
	l.read(arrives(rows[2], 1, time.Now()), 0)
	if settled, _ := l.settled(1); !settled {
		t.Error("the first event is there")
	}
	if settled, _ := l.settled(3); settled || len(l.missing(3)) != 1 || l.missing(3)[0].RowID != 2 {
		t.Errorf("missing %v", l.missing(3))
	}
	l.excuse(givenUp, func(e *event) bool { return e.RowID == 2 })
	if settled, _ := l.settled(3); !settled {
		t.Error("an event that was given up is waited for")
	}
	if l.mu.unknown.committed != 1 {
		t.Errorf("%d unknown outcomes", l.mu.unknown.committed)
	}
}

func TestRepeatOfWhatWasConfirmedIsNoticed(t *testing.T) {
	l, rows := told(t, 3)
	for i, row := range rows {
		l.read(arrives(row, int64(i), time.Now()), 0)
	}
	l.confirmed(2)
	later := time.Now().Add(time.Second)
	l.read(arrives(rows[1], 3, later), 0)
	l.read(arrives(rows[2], 4, later), 0) // was not confirmed
	if found := l.confirmedBefore(); len(found) != 1 || found[0].RowID != 2 {
		t.Errorf("found %v", found)
	}
	l.forget()
	if found := l.confirmedBefore(); len(found) != 0 {
		t.Errorf("found %v although the server may have forgotten it", found)
	}
}

func TestStrangeRecordsAreNoticed(t *testing.T) {
	l, rows := told(t, 4)
	wrong := arrives(rows[0], 0, time.Now())
	wrong.Value = []byte("{ }")
	l.read(wrong, 0)
	wrong = arrives(rows[1], 1, time.Now())
	wrong.Topic = service + ".order.paid"
	l.read(wrong, 0)
	wrong = arrives(rows[2], 2, time.Now())
	wrong.Key = []byte("other")
	l.read(wrong, 0)
	l.read(arrives(oracle.Committed{EventID: outbox.EventID{99}}, 3, time.Now()), 0)
	if len(l.mu.strange) != 3 || len(l.mu.phantoms) != 1 {
		t.Errorf("strange %v, phantoms %v", l.mu.strange, l.mu.phantoms)
	}
}

// What a topic holds is in order behind what the one that was deleted had held.
func TestLifeAfterLifeOfATopic(t *testing.T) {
	l, rows := told(t, 2)
	l.read(arrives(rows[0], 7, time.Now()), 0)
	l.deleted(service + ".order.placed")
	l.read(arrives(rows[1], 0, time.Now()), 1)
	if v := oracle.Judge(rows, l.mu.consumed); len(v.Swapped)+len(v.Lost) > 0 {
		t.Errorf("%+v", v)
	}
	if l.heldOf(service+".order.placed") != 1 {
		t.Error("the deleted records are counted")
	}
}
