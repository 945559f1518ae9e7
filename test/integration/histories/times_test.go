package histories

import (
	"testing"
	"time"

	"walrelay/test/harness"
	"walrelay/test/integration/fixture"
)

// H16: a record whose timestamp is older than its topic's retention is deleted before anyone reads it.
func TestH16TimestampIsThatOfPublishing(t *testing.T) {
	t.Parallel()
	f := fixture.New(t)
	f.Relay(t).Ready(t)
	began := time.Now().Truncate(time.Millisecond)
	f.DB.Exec(t, `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload, created_at)
		VALUES ('Order', 'old', 'OrderPlaced', '{}', '2001-02-03 04:05:06.789+00')`)
	record := f.Events(t, 1)[0]
	if record.Timestamp.Before(began) || record.Timestamp.After(time.Now()) {
		t.Errorf("the record's timestamp is %v, published after %v", record.Timestamp, began)
	}
	created, _ := harness.HeaderOf(record, "created_at")
	if at, err := time.Parse(time.RFC3339Nano, created); err != nil || !at.Equal(time.Date(2001, 2, 3, 4, 5, 6, 789e6, time.UTC)) {
		t.Errorf("created_at header %q: %v", created, err)
	}
}
