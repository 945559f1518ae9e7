// Package postgres is what both sources need of the server: connections with pinned settings, the lock
// of the table, what must be true of server, table and role, and errors that say what to type.
package postgres

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const (
	// ApplicationName is what pg_stat_activity shows of every connection.
	ApplicationName = "walrelay"

	// ConnectTimeout bounds the opening of a connection where DATABASE_URL does not.
	ConnectTimeout = 10 * time.Second

	// statementTimeout bounds every statement of an SQL connection; the longest settles 2000 rows.
	statementTimeout = 30 * time.Second

	// answerTimeout is what the answer may take beyond that to arrive. A proxy whose other half is gone
	// takes what it is given and never answers, and TCP does not notice.
	answerTimeout = 5 * time.Second

	// lockTimeout bounds each wait for a lock on an SQL connection. PostgreSQL 16 and later open the
	// table when they print what a publication holds, so a LOCK TABLE would hold up the watch.
	lockTimeout = 2 * time.Second
)

// DialFunc opens a network connection.
type DialFunc func(ctx context.Context, network, addr string) (net.Conn, error)

// pinned are the settings that decide how values are printed. Without them a role's or database's
// own settings would reach the payload, the event id or the times.
var pinned = map[string]string{
	"datestyle":          "ISO, YMD",
	"intervalstyle":      "postgres",
	"extra_float_digits": "1",
	"bytea_output":       "hex",
	"client_encoding":    "UTF8",
	"TimeZone":           "UTC",
	"application_name":   ApplicationName,
}

// ParseDatabase reads DATABASE_URL once. The password is never part of an error.
func ParseDatabase(url string, dial DialFunc) (*pgx.ConnConfig, error) {
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, &FatalError{Reason: "DATABASE_URL cannot be read", Remedy: "write postgres://user@host:5432/database", Err: redact(err)}
	}
	if cfg.ConnectTimeout == 0 {
		cfg.ConnectTimeout = ConnectTimeout
	}
	if dial == nil {
		dialer := &net.Dialer{KeepAliveConfig: keepAlive, Control: userTimeout}
		dial = dialer.DialContext
	}
	cfg.DialFunc = pgconn.DialFunc(dial)
	for k, v := range pinned {
		// The server takes names of settings in any case: PGTZ, which pgx calls timezone, would be sent
		// beside our TimeZone, and which of them holds would be chance.
		maps.DeleteFunc(cfg.RuntimeParams, func(given, _ string) bool { return strings.EqualFold(given, k) })
		cfg.RuntimeParams[k] = v
	}
	return cfg, nil
}

// redact keeps the text that pgconn has already cleaned of the password.
func redact(err error) error {
	var parse *pgconn.ParseConfigError
	if errors.As(err, &parse) {
		return errors.New(parse.Error())
	}
	return errors.New("unknown syntax")
}

// keepAlive finds a dead peer of an idle connection within 20 seconds.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 5 * time.Second, Count: 3}

// Connect opens a connection that settles and watches. The server ends it after idle without a word
// from us; 0 is never.
func Connect(ctx context.Context, base *pgx.ConnConfig, idle time.Duration) (*pgx.Conn, error) {
	cfg := base.Copy()
	// A marked row must be on the primary's disk before the position is confirmed, and must not wait
	// for a synchronous standby, which could be waiting for us (H13, H14).
	cfg.RuntimeParams["synchronous_commit"] = "local"
	cfg.RuntimeParams["statement_timeout"] = strconv.FormatInt(statementTimeout.Milliseconds(), 10)
	cfg.RuntimeParams["lock_timeout"] = strconv.FormatInt(lockTimeout.Milliseconds(), 10)
	cfg.RuntimeParams["idle_session_timeout"] = strconv.FormatInt(idle.Milliseconds(), 10)
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return nil, ConnectError(cfg, err)
	}
	return conn, nil
}

// Limited bounds one statement on our side, where a dead connection is noticed too.
func Limited(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, statementTimeout+answerTimeout)
}

// ConnectError names what a person must mend; everything else is left to a new session.
func ConnectError(cfg *pgx.ConnConfig, err error) error {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		if untrusted := certificateError(err); untrusted != nil {
			return &FatalError{
				Reason: "the certificate of PostgreSQL at " + hosts(cfg) + " cannot be trusted",
				Remedy: "give the authority that signed it as sslrootcert in DATABASE_URL (or PGSSLROOTCERT), and connect by a name that the certificate has",
				Err:    untrusted,
			}
		}
		return fmt.Errorf("connect to PostgreSQL: %w", err)
	}
	// What the server says is enough: pgconn's words around it are a line for each address.
	switch pg.Code {
	case "28P01", "28000":
		return &FatalError{
			Reason: fmt.Sprintf("PostgreSQL at %s does not let user %q in", hosts(cfg), cfg.User),
			Remedy: "check user and password in DATABASE_URL, and that pg_hba.conf has a line for this host (a \"host replication\" line is not needed)",
			Err:    pg,
		}
	case "3D000":
		return &FatalError{
			Reason: fmt.Sprintf("database %q does not exist at %s", cfg.Database, hosts(cfg)),
			Remedy: "name the database that holds the outbox in DATABASE_URL",
			Err:    pg,
		}
	case "42501":
		return NoReplication(cfg.User, pg)
	case "42704": // undefined object: a setting of ours that came with PostgreSQL 14, or one of DATABASE_URL
		return &FatalError{
			Reason: fmt.Sprintf("PostgreSQL at %s does not know a setting of the connection", hosts(cfg)),
			Remedy: "walrelay needs PostgreSQL 14 or later; on such a server, take the parameter out of DATABASE_URL",
			Err:    pg,
		}
	}
	return fmt.Errorf("connect to PostgreSQL: %w", err)
}

// certificateError is why a server's certificate was not accepted, nil where that is not the failure.
// With sslmode=verify-ca pgx verifies by itself, and the error is x509's own.
func certificateError(err error) error {
	if e, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return e
	}
	if e, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return e
	}
	if e, ok := errors.AsType[x509.CertificateInvalidError](err); ok {
		return e
	}
	return nil
}

// hosts are the servers of DATABASE_URL, each once.
func hosts(cfg *pgx.ConnConfig) string {
	all := []string{address(cfg.Host, cfg.Port)}
	for _, f := range cfg.Fallbacks { // also the same host without TLS
		if a := address(f.Host, f.Port); !slices.Contains(all, a) {
			all = append(all, a)
		}
	}
	return strings.Join(all, ", ")
}

func address(host string, port uint16) string { return net.JoinHostPort(host, strconv.Itoa(int(port))) }

// NoReplication is the error of a role that may not stream.
func NoReplication(user string, err error) error {
	return &ModeError{
		Reason: fmt.Sprintf("role %q may not use replication", user),
		Remedy: "run as a superuser: ALTER ROLE " + pgx.Identifier{user}.Sanitize() + " REPLICATION (walrelay migrate role prints a complete role)",
		Err:    err,
	}
}
