package sink

import (
	"math/bits"

	"walrelay/router"
)

// batchOverhead is what a record batch of format 2 measures without records, as kgo counts it while
// it does not know the broker's version yet: 61 bytes of batch header (Kafka protocol guide, Record
// Batch), which are what a broker compares with max.message.bytes, and the 4 bytes of the length
// before it. A record that fits by our count therefore fits by kgo's and by every broker's.
const batchOverhead = 61 + 4

// batchSize is what a batch that holds this record alone measures before compression, in bytes.
//
// Compression is left out on purpose. kgo applies its limit before it compresses, and a broker
// whose topic has a compression.type of its own compresses anew; so a record that fits only when
// it is compressed fits by luck. It is refused here, where the reason can be told.
func batchSize(r *router.Record) int {
	// Attributes, timestamp delta 0 and offset delta 0 take one byte each.
	n := 3 + prefixed(len(r.Key)) + prefixed(len(r.Value)) + varintLen(len(r.Headers))
	for i := range r.Headers {
		n += prefixed(len(r.Headers[i].Key)) + prefixed(len(r.Headers[i].Value))
	}
	return batchOverhead + prefixed(n)
}

// prefixed is the size of n bytes with their length before them. NULL takes one byte, as empty does.
func prefixed(n int) int { return varintLen(n) + n }

// varintLen is the size of n, which is not negative, as a zigzag varint.
func varintLen(n int) int { return (bits.Len64(uint64(n)<<1|1) + 6) / 7 }
