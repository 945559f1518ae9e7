package pgfake

import "github.com/jackc/pgx/v5/pgproto3"

// Error is an error of the server.
type Error struct {
	Severity string // ERROR (the default), FATAL: the connection ends
	Code     string // SQLSTATE
	Message  string
	Detail   string
	Hint     string
}

func (e *Error) Error() string { return e.Code + ": " + e.Message }

func (e *Error) fatal() bool { return e.Severity == "FATAL" }

func (e *Error) response() *pgproto3.ErrorResponse {
	severity := e.Severity
	if severity == "" {
		severity = "ERROR"
	}
	return &pgproto3.ErrorResponse{
		Severity: severity, SeverityUnlocalized: severity,
		Code: e.Code, Message: e.Message, Detail: e.Detail, Hint: e.Hint,
	}
}
