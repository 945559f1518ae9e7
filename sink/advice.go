package sink

import "sync/atomic"

// A risk is something about a topic that works, and that its owner may not have meant. Each is said
// once for a topic, again only after it was gone, and counted as long as it is there.
type risk uint8

const (
	// An acknowledged record may be on one broker only, although there are several: lost with it.
	oneReplicaIsEnough risk = iota
	// Rows that KAFKA_MAX_MESSAGE_BYTES allows do not fit into the topic.
	smallMessages
	// Keys are on other partitions than before, so the order of a key ends and begins anew there.
	partitionsChanged

	risks
)

func (r risk) String() string {
	return [risks]string{"min_insync_replicas", "max_message_bytes", "partitions_changed"}[r]
}

// advised is what has been said about a topic.
type advised [risks]atomic.Bool

// seen is a topic at the last look.
type seen struct {
	id         [16]byte
	partitions int
}

// first notes whether the risk is there, and reports whether that has to be said.
func (a *advised) first(r risk, there bool) bool {
	if !there {
		a[r].Store(false)
		return false
	}
	return !a[r].Swap(true)
}

// advise says what is risky about a topic that was just found.
func (ts *topics) advise(t *topic, brokers int) {
	f, log := t.found, ts.p.log
	if t.advised.first(oneReplicaIsEnough, brokers > 1 && f.minInSync == 1) {
		log.Warn("a topic's min.insync.replicas is 1: what kafka acknowledges may be on one broker only, and is lost with it",
			"topic", t.name, "replicas", f.replicas, "brokers", brokers,
			"remedy", "give the topic 3 replicas and min.insync.replicas=2 (KAFKA_TOPIC_REPLICATION_FACTOR and KAFKA_TOPIC_CONFIG for those that are created)")
	}
	if t.advised.first(smallMessages, f.limit < ts.p.cfg.MaxMessageBytes) {
		log.Warn("a topic's max.message.bytes is below KAFKA_MAX_MESSAGE_BYTES: larger rows cannot be published there",
			"topic", t.name, "max_message_bytes", f.limit, "own", ts.p.cfg.MaxMessageBytes,
			"remedy", "raise the topic's max.message.bytes, or lower KAFKA_MAX_MESSAGE_BYTES to say that it is meant")
	}
	before := t.seen
	t.seen = seen{f.id, f.partitions}
	if before.partitions == 0 || before.id != f.id || before.partitions == f.partitions {
		return // the first look at it, or at another topic of that name
	}
	t.advised[partitionsChanged].Store(true)
	log.Warn("a topic has another number of partitions than before: keys move, and a key's order holds on each partition alone",
		"topic", t.name, "before", before.partitions, "now", f.partitions,
		"remedy", "let consumers finish the old partitions before they rely on the order of a key again")
}

// countRisk is how many topics have it.
func (ts *topics) countRisk(r risk) int {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	n := 0
	for _, t := range ts.mu.byName {
		if t.advised[r].Load() {
			n++
		}
	}
	return n
}
