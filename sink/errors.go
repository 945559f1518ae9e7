package sink

import (
	"errors"
	"fmt"
)

// ErrPending is Produce's answer while it is not known yet whether and how the record's topic can be
// written to. The caller keeps the record and calls again after Wake.
var ErrPending = errors.New("the record's topic is being looked up")

// A Reason says why a row can never be published as it is.
type Reason string

// The reasons are label values of walrelay_sink_records_refused_total.
const (
	TooLarge     Reason = "too_large"     // does not fit into a batch of its own
	NoKey        Reason = "no_key"        // has no key, and its topic is compacted
	InvalidTopic Reason = "invalid_topic" // Kafka does not accept the topic's name
)

// A RowError is a row that Kafka would reject whenever it is sent: found before Produce, so that
// neither the row's neighbours in a batch nor the rows behind it are touched.
type RowError struct {
	Topic  string
	Reason Reason
	Err    error // what is wrong, and what mends it
}

func (e *RowError) Error() string { return fmt.Sprintf("topic %q: %v", e.Topic, e.Err) }
func (e *RowError) Unwrap() error { return e.Err }

// A TopicError is a topic that could not be written to for KAFKA_UNKNOWN_TOPIC_WAIT. Produce returns
// it for every row of the topic until the topic is mended, which is noticed within seconds.
type TopicError struct {
	Topic  string
	Remedy string // what to type
	Err    error  // Kafka's answer
}

func (e *TopicError) Error() string {
	return fmt.Sprintf("topic %q cannot be written to: %v: %s", e.Topic, e.Err, e.Remedy)
}
func (e *TopicError) Unwrap() error { return e.Err }
