package outbox

import (
	"crypto/rand"
	"encoding/binary"
	"time"
)

// newEventID is a UUID of version 7 (RFC 9562): ids of one moment lie side by side in the unique index.
func newEventID(now time.Time) EventID {
	var id EventID
	rand.Read(id[:])
	binary.BigEndian.PutUint64(id[:8], uint64(now.UnixMilli())<<16|uint64(id[6])<<8|uint64(id[7]))
	id[6] = id[6]&0x0f | 0x70
	id[8] = id[8]&0x3f | 0x80
	return id
}
