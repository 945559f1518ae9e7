package sink

import (
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"
)

// Class is what a failed record asks of the relay (DESIGN.md, Failure policy).
type Class uint8

const (
	// Session: nothing is wrong with the record. A new session sends it again.
	Session Class = iota
	// Row: a batch was rejected for what is in it. Which of its records is to blame is not known until
	// they are sent one record per batch; one that is rejected alone is poison.
	Row
	// Topic: the topic is missing or refused. Produce answers ErrPending for it from now on, and a
	// *TopicError when that has lasted for KAFKA_UNKNOWN_TOPIC_WAIT.
	Topic
	// Fatal: no retry mends it; the relay exits and says what does.
	Fatal

	classes
)

func (c Class) String() string {
	switch c {
	case Session:
		return "session"
	case Row:
		return "row"
	case Topic:
		return "topic"
	case Fatal:
		return "fatal"
	}
	return "unknown"
}

// Classify sorts an error that an Acker was told, or that Produce returned.
//
// Only Session loses nothing and asks nobody: the record is sent again until it is taken. So whatever
// is not known here is Session, and an error leaves it only where sending again cannot help. That
// includes all that kgo says about itself (time-outs, a closed client, a purged topic), contexts that
// ended, and the network.
func Classify(err error) Class {
	if _, ok := errors.AsType[*RowError](err); ok {
		return Row
	}
	if _, ok := errors.AsType[*TopicError](err); ok {
		return Topic
	}
	if kafka, ok := errors.AsType[*kerr.Error](err); ok {
		return classifyCode(kafka)
	}
	return Session
}

func classifyCode(err *kerr.Error) Class {
	switch err {
	// The batch is too large, for the topic's limit or for the broker's segment. Normally Produce has
	// checked that; the limit was lowered since, or may not be read by us.
	case kerr.MessageTooLarge, kerr.RecordListTooLarge,
		// The broker looked into the batch and refused a record: no key on a compacted topic, a
		// schema or a policy of the broker's owner, a topic that is reserved for Kafka itself.
		kerr.InvalidRecord, kerr.PolicyViolation, kerr.InvalidTopicException,
		// The checksum did not match, or (brokers before 2.4) a record had no key on a compacted
		// topic. If the bytes were damaged on their way, the second sending, which Row asks for in any
		// case, heals it; as Session the other cause would be tried for ever.
		kerr.CorruptMessage:
		return Row

	case kerr.UnknownTopicOrPartition, kerr.UnknownTopicID, kerr.InconsistentTopicID,
		kerr.TopicAuthorizationFailed,
		// The topic keeps an old message format that has no headers and no idempotence.
		kerr.UnsupportedForMessageFormat:
		return Topic

	// What we may do in the cluster as a whole. CLUSTER_AUTHORIZATION_FAILED on the way of a record means
	// that the user has no IdempotentWrite (brokers before 3.0).
	case kerr.ClusterAuthorizationFailed, kerr.TransactionalIDAuthorizationFailed,
		// zstd and a broker before 2.1: a setting of ours that cannot work there.
		kerr.UnsupportedCompressionType:
		return Fatal
	}
	// Session, and not by oversight:
	//
	// SASL_AUTHENTICATION_FAILED and all else that loginCode knows say nothing about the record. Whether a
	// refused login ends the relay depends on whether it was ever accepted, which reach knows: it ends
	// Run.
	//
	// UNKNOWN_SERVER_ERROR is an exception inside the broker. It may well depend on the record, but a
	// sick broker answers it to every record, also to each one alone; as Row that would condemn
	// healthy rows one by one. Sent again, one poison record holds the relay up until somebody looks,
	// and nothing is lost.
	//
	// INVALID_TIMESTAMP is our clock being too far from the broker's, since the timestamp is the time
	// of publishing. It is every record's fault or none's, and ends when the clock is right.
	//
	// INVALID_REQUIRED_ACKS, INVALID_REQUEST, UNSUPPORTED_VERSION: what kgo sends is right for the
	// broker that it was told it talks to. In a rolling upgrade the next try meets the right one.
	//
	// PRODUCER_FENCED, INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER and the like end the client's
	// producer id, not the record.
	return Session
}
