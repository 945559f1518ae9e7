package decoder

import (
	"encoding/binary"

	"walrelay/outbox"
)

// Column is one column of a table as the catalogue has it. TypeOID is that of the base type where the
// column's type is a domain.
type Column struct {
	Name    string
	TypeOID uint32
}

// CheckShape says before anything is streamed what the first Relation message would say: a
// *ShapeError where a needed column is missing or of a type that does not fit.
func CheckShape(table outbox.Table, cols outbox.Columns, columns []Column) error {
	d := New(table, cols, 0)
	if rel := d.describe(1, len(columns), describeColumns(columns)); rel.unfit != nil {
		return rel.unfit
	}
	return nil
}

// describeColumns writes columns as a Relation message has them.
func describeColumns(columns []Column) reader {
	var body []byte
	for _, c := range columns {
		body = append(body, 0)
		body = append(append(body, c.Name...), 0)
		body = binary.BigEndian.AppendUint32(body, c.TypeOID)
		body = append(body, 0xff, 0xff, 0xff, 0xff)
	}
	return reader{msg: body}
}
