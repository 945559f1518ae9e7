package postgres

import (
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"
)

// A ModeError says that the source cannot be had, or would not carry every row, until an operator
// acts. Remedy is what to type.
type ModeError struct {
	Reason string
	Remedy string
	Err    error
}

func (e *ModeError) Error() string { return describe(e.Reason, e.Remedy, e.Err) }
func (e *ModeError) Unwrap() error { return e.Err }

// A FatalError is a mistake in the configuration or in the database that no retry mends.
type FatalError struct {
	Reason string
	Remedy string
	Err    error
}

func (e *FatalError) Error() string { return describe(e.Reason, e.Remedy, e.Err) }
func (e *FatalError) Unwrap() error { return e.Err }

func describe(reason, remedy string, err error) string {
	if err != nil {
		reason = fmt.Sprintf("%s (%v)", reason, err)
	}
	if remedy == "" {
		return reason
	}
	return reason + ": " + remedy
}

// Refused reports that a statement failed for a right that the role does not have.
func Refused(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pg.Code == "42501"
}

// Locked reports that a statement gave up waiting for a lock of somebody else's.
func Locked(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pg.Code == "55P03"
}
