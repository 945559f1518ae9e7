package decoder

import "encoding/binary"

// The messages that tests make up themselves. What a server really sends is in testdata.

type column struct {
	name string
	oid  uint32
}

func nativeColumns() []column {
	return []column{
		{"id", 20}, {"event_id", 2950}, {"aggregate_type", 25}, {"aggregate_id", 25}, {"event_type", 25}, {"payload", 3802},
		{"headers", 3802}, {"topic", 25}, {"partition_key", 25}, {"created_at", 1184}, {"published_at", 1184},
	}
}

func encodeRelation(id uint32, schema, name string, columns []column) []byte {
	b := []byte{'R'}
	b = binary.BigEndian.AppendUint32(b, id)
	b = append(append(b, schema...), 0)
	b = append(append(b, name...), 0, 'd')
	b = binary.BigEndian.AppendUint16(b, uint16(len(columns)))
	for _, c := range columns {
		b = append(b, 0)
		b = append(append(b, c.name...), 0)
		b = binary.BigEndian.AppendUint32(b, c.oid)
		b = binary.BigEndian.AppendUint32(b, 0xffffffff)
	}
	return b
}

func encodeType(id uint32, schema, name string) []byte {
	b := binary.BigEndian.AppendUint32([]byte{'Y'}, id)
	b = append(append(b, schema...), 0)
	return append(append(b, name...), 0)
}

func encodeInsert(id uint32, fields []field) []byte {
	b := binary.BigEndian.AppendUint32([]byte{'I'}, id)
	b = binary.BigEndian.AppendUint16(append(b, 'N'), uint16(len(fields)))
	for _, f := range fields {
		b = append(b, f.form)
		if f.form == formText || f.form == formBinary {
			b = binary.BigEndian.AppendUint32(b, uint32(len(f.data)))
			b = append(b, f.data...)
		}
	}
	return b
}

func text(s string) field { return field{formText, []byte(s)} }
func wire(s string) field { return field{formBinary, []byte(s)} }
func null() field         { return field{form: formNull} }
func unsent() field       { return field{form: formUnsent} }

const (
	exampleUUID   = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"
	exampleUUID16 = "\xa0\xee\xbc\x99\x9c\x0b\x4e\xf8\xbb\x6d\x6b\xb9\xbd\x38\x0a\x11"
	examplePay    = `{"items": [{"qty": 2, "sku": "A-1001"}], "total": 1.10, "customer": "c-000017", "currency": "EUR"}`
)

// nativeText and nativeBinary are one row of nativeColumns in the two forms.
func nativeText() []field {
	return []field{text("42"), text(exampleUUID), text("order"), text("o-42"), text("OrderCreated"), text(examplePay),
		text(`{"traceparent": "00-1-2-01"}`), text("t"), text("k"), text("2026-11-30 10:00:00.123456+00"), null()}
}

func nativeBinary() []field {
	return []field{wire("\x00\x00\x00\x00\x00\x00\x00\x2a"), wire(exampleUUID16), wire("order"), wire("o-42"),
		wire("OrderCreated"), wire("\x01" + examplePay), wire("\x01" + `{"traceparent": "00-1-2-01"}`), wire("t"), wire("k"),
		wire("\x00\x03\x04\x7a\x3d\xd6\x8a\x40"), null()}
}
