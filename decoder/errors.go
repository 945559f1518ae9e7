package decoder

import (
	"errors"
	"fmt"

	"walrelay/outbox"
)

// RowError says that one row cannot be read; the stream is sound and goes on behind it. The ids are
// zero as far as they are among what could not be read.
type RowError struct {
	RowID   int64
	EventID outbox.EventID
	Column  string
	Err     error
}

func (e *RowError) Error() string {
	return fmt.Sprintf("decode row %d (event %s): column %q: %v", e.RowID, e.EventID, e.Column, e.Err)
}

func (e *RowError) Unwrap() error { return e.Err }

// ShapeError says that the table, as the publication sends it, cannot serve as an outbox: a column is
// missing or of a type that does not fit.
type ShapeError struct {
	Table    outbox.Table
	Column   string // as configured
	Variable string // the environment variable that names the column
	Found    string // the type found, or the columns found where the column is missing
	Want     string // the types that fit
	Missing  bool
	Optional bool
}

func (e *ShapeError) Error() string {
	if e.Missing {
		return fmt.Sprintf("table %s is published without a column %q (published: %s): "+
			"add it as %s, to the publication's column list too if there is one, or name another column with %s",
			e.Table, e.Column, e.Found, e.Want, e.Variable)
	}
	hint := "name another column with " + e.Variable
	if e.Optional {
		hint += ", or set it to a name that the table does not have: the column is optional"
	}
	return fmt.Sprintf("column %q of table %s is of type %s where %s is needed: change its type, or %s",
		e.Column, e.Table, e.Found, e.Want, hint)
}

// Why a column of a row cannot be decoded.
var (
	errNull      = errors.New("is NULL, which it must not be")
	errUnsent    = errors.New("its TOAST value was not sent")
	errTooLong   = errors.New("is longer than any value of its type")
	errWidth     = errors.New("its binary form has the wrong length")
	errInteger   = errors.New("is not an integer of 64 bits")
	errUUID      = errors.New("is not a uuid")
	errJSONB     = errors.New("is jsonb of an unknown version")
	errHex       = errors.New("is not bytea in hex form (bytea_output must be hex)")
	errTimestamp = errors.New("is not a timestamp in ISO form (DateStyle must be ISO)")
)

// MalformedError says that the stream is not pgoutput of protocol version 1, or is broken.
type MalformedError struct {
	Kind   Kind // 0 where there is none
	Offset int  // counts from the kind byte
	What   string
}

func (e *MalformedError) Error() string {
	return fmt.Sprintf("decode %s at byte %d: %s", e.Kind, e.Offset, e.What)
}

var errEmpty = &MalformedError{What: "the message is empty"}

func malformed(kind Kind, offset int, what string) error { return &MalformedError{kind, offset, what} }
