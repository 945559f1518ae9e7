package checkpoint

import (
	"encoding/binary"

	"github.com/jackc/pgx/v5/pgtype"
)

// keyArrays writes the ids and the event ids of rows as one bigint[] and one uuid[] in binary form, into buffers
// that are used again. (pgx encodes a uuid[] with two allocations per element.)
type keyArrays struct {
	ids, events []byte
}

// encode: the results are valid until the next call. The form is that of array_recv: dimensions, whether there are
// NULLs, the type of the elements, their number, the first subscript; then length and value of each.
func (k *keyArrays) encode(rows []Pending) (ids, events []byte) {
	k.ids = appendArray(k.ids[:0], pgtype.Int8OID, len(rows))
	k.events = appendArray(k.events[:0], pgtype.UUIDOID, len(rows))
	for i := range rows {
		row := &rows[i].Row
		k.ids = binary.BigEndian.AppendUint32(k.ids, 8)
		k.ids = binary.BigEndian.AppendUint64(k.ids, uint64(row.RowID))
		k.events = binary.BigEndian.AppendUint32(k.events, uint32(len(row.EventID)))
		k.events = append(k.events, row.EventID[:]...)
	}
	return k.ids, k.events
}

func appendArray(dst []byte, element uint32, n int) []byte {
	for _, word := range [...]uint32{1, 0, element, uint32(n), 1} {
		dst = binary.BigEndian.AppendUint32(dst, word)
	}
	return dst
}
