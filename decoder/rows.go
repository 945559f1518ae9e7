package decoder

import (
	"fmt"
	"slices"

	"walrelay/outbox"
)

// Rows makes events of the rows of a query, by the same rules as of inserts in a stream: what
// PostgreSQL prints for a column is the same in both. It is used by one goroutine.
type Rows struct {
	d       *Decoder
	columns []Column
}

// NewRows returns the decoder for a table with these columns, or a *ShapeError where they cannot serve
// as an outbox.
func NewRows(table outbox.Table, cols outbox.Columns, columns []Column) (*Rows, error) {
	d := New(table, cols, 0)
	needed := slices.DeleteFunc(slices.Clone(columns), func(c Column) bool {
		return c.Name == cols.PublishedAt || !slices.Contains(d.columns[:], c.Name)
	})
	d.relation = d.describe(1, len(needed), describeColumns(needed))
	if d.relation.unfit != nil {
		return nil, d.relation.unfit
	}
	return &Rows{d: d, columns: needed}, nil
}

// Columns are the columns that Row wants, in its order. published_at is none of them: a query knows it.
func (r *Rows) Columns() []Column { return r.columns }

// Row makes the event of one row. A nil value is NULL; the others are in text form, and those of bytea
// columns are decoded in place. The event aliases them and is valid until the next call. Of a row that
// is too large to be held, payload and headers were not read.
//
// After a *RowError the event holds all that could be read.
func (r *Rows) Row(values [][]byte, large bool) (*outbox.Event, error) {
	if len(values) != len(r.columns) {
		return nil, fmt.Errorf("a row of %d columns; %d were asked for", len(values), len(r.columns))
	}
	size := 0
	for i, slot := range r.d.relation.slots {
		size += len(values[i])
		if slot < 0 {
			continue
		}
		f := field{form: formText, data: values[i]}
		if values[i] == nil {
			f.form = formNull
		}
		r.d.row[slot] = f
	}
	err := r.d.decodeRow(size, large)
	return &r.d.event, err
}
