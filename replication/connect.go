package replication

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const (
	applicationName = "walrelay"
	connectTimeout  = 10 * time.Second

	// statementTimeout bounds every statement of the SQL connection; the longest settles 2000 rows.
	statementTimeout = 30 * time.Second

	// answerTimeout is what the answer may take beyond that to arrive. A proxy whose other half is gone
	// takes what it is given and never answers, and TCP does not notice.
	answerTimeout = 5 * time.Second

	// lockTimeout bounds each wait for a lock on the SQL connection. PostgreSQL 16 and later open the
	// table when they print what a publication holds, so a LOCK TABLE would hold up the watch.
	lockTimeout = 2 * time.Second

	// Bounds of wal_sender_timeout as the session sets it. Short, so that the slot of a dead host is
	// free soon; doubled when a server that decodes a huge transaction in silence ends the session at
	// the same place again and again (H23).
	minSenderTimeout = 15 * time.Second
	maxSenderTimeout = 5 * time.Minute
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
	"application_name":   applicationName,
}

// parseDatabase reads DATABASE_URL once. The password is never part of an error.
func parseDatabase(url string, dial DialFunc) (*pgx.ConnConfig, error) {
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, &FatalError{Reason: "DATABASE_URL cannot be read", Remedy: "write postgres://user@host:5432/database", Err: redact(err)}
	}
	if cfg.ConnectTimeout == 0 {
		cfg.ConnectTimeout = connectTimeout
	}
	if dial == nil {
		dialer := &net.Dialer{KeepAliveConfig: keepAlive, Control: userTimeout}
		dial = dialer.DialContext
	}
	cfg.DialFunc = pgconn.DialFunc(dial)
	for k, v := range pinned {
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

// connectSQL opens the connection that settles and watches.
func connectSQL(ctx context.Context, base *pgx.ConnConfig) (*pgx.Conn, error) {
	cfg := base.Copy()
	// A marked row must be on the primary's disk before the position is confirmed, and must not wait
	// for a synchronous standby, which could be waiting for us (H13, H14).
	cfg.RuntimeParams["synchronous_commit"] = "local"
	cfg.RuntimeParams["statement_timeout"] = strconv.FormatInt(statementTimeout.Milliseconds(), 10)
	cfg.RuntimeParams["lock_timeout"] = strconv.FormatInt(lockTimeout.Milliseconds(), 10)
	cfg.RuntimeParams["idle_session_timeout"] = "0" // it says nothing between two looks at the server
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return nil, connectError(cfg, err)
	}
	return conn, nil
}

// limited bounds one statement on our side, where a dead connection is noticed too.
func limited(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, statementTimeout+answerTimeout)
}

// connectReplication opens the connection that streams. It speaks SQL too, by simple queries.
func connectReplication(ctx context.Context, base *pgx.ConnConfig, senderTimeout time.Duration, notice func(*pgconn.Notice)) (*pgconn.PgConn, error) {
	cfg := base.Config.Copy()
	cfg.RuntimeParams["replication"] = "database"
	cfg.RuntimeParams["wal_sender_timeout"] = strconv.FormatInt(senderTimeout.Milliseconds(), 10)
	for _, timeout := range []string{"statement_timeout", "lock_timeout", "idle_session_timeout"} {
		cfg.RuntimeParams[timeout] = "0" // a role's own setting would end the stream
	}
	cfg.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) { notice(n) }
	conn, err := pgconn.ConnectConfig(ctx, cfg)
	if err != nil {
		return nil, connectError(base, err)
	}
	return conn, nil
}

// connectError names what a person must mend; everything else is left to a new session.
func connectError(cfg *pgx.ConnConfig, err error) error {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
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
		return noReplication(cfg.User, pg)
	case "42704": // undefined object: a setting of ours that came with PostgreSQL 14, or one of DATABASE_URL
		return &FatalError{
			Reason: fmt.Sprintf("PostgreSQL at %s does not know a setting of the connection", hosts(cfg)),
			Remedy: "walrelay needs PostgreSQL 14 or later; on such a server, take the parameter out of DATABASE_URL",
			Err:    pg,
		}
	}
	return fmt.Errorf("connect to PostgreSQL: %w", err)
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

func noReplication(user string, err error) error {
	return &ModeError{
		Reason: fmt.Sprintf("role %q may not use replication", user),
		Remedy: "run as a superuser: ALTER ROLE " + pgx.Identifier{user}.Sanitize() + " REPLICATION (walrelay migrate role prints a complete role)",
		Err:    err,
	}
}

// querySimple runs one statement by the simple protocol, the only one that a replication connection
// speaks, and returns its rows as text; NULL is the empty string.
func querySimple(ctx context.Context, conn *pgconn.PgConn, sql string) ([][]string, error) {
	ctx, done := limited(ctx)
	defer done()
	results, err := conn.Exec(ctx, sql).ReadAll()
	if err != nil {
		return nil, err
	}
	var rows [][]string
	for _, result := range results {
		for _, row := range result.Rows {
			values := make([]string, len(row))
			for i, v := range row {
				values[i] = string(v)
			}
			rows = append(rows, values)
		}
	}
	return rows, nil
}
