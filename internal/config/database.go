package config

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Database says which database holds the outbox.
type Database struct {
	URL string `env:"DATABASE_URL" required:"true" secret:"true" doc:"PostgreSQL that holds the outbox, such as postgres://user:password@host:5432/database; also in libpq's form host=… dbname=…. Where it is not set, libpq's variables hold, of which PGHOST or PGSERVICE must be."`
}

// libpq are the variables of which one must say where the server is when DATABASE_URL does not. pgx reads
// them, and all their like, from the environment of the process.
var libpq = []string{"PGHOST", "PGSERVICE"}

// byLibpq reports whether libpq's variables take the place of DATABASE_URL.
func byLibpq(vars map[string]string) bool {
	return vars["DATABASE_URL"] == "" && vars["DATABASE_URL_FILE"] == "" && slices.ContainsFunc(libpq, func(name string) bool { return vars[name] != "" })
}

// checkLibpq reports variables of libpq that cannot be read.
func checkLibpq() error {
	if _, err := pgx.ParseConfig(""); err != nil {
		return fmt.Errorf("libpq's variables (PGHOST, PGSERVICE, PGSSLROOTCERT and the like) cannot be read: %s", cause(err, os.Getenv("PGPASSWORD")))
	}
	return nil
}

// Validate reports a URL that cannot be read, without its password.
func (d Database) Validate() []error {
	if d.URL == "" {
		return nil // reported as missing
	}
	if _, err := pgx.ParseConfig(d.URL); err != nil {
		return []error{fmt.Errorf("DATABASE_URL cannot be read (%s): write postgres://user@host:5432/database, special characters of the password as %%XX",
			cause(err, d.URL))}
	}
	return nil
}

// cause is the reason inside an error of pgx: the words around it repeat the URL, and so can those
// of net/url. An URL that cannot be read cannot be cleaned with certainty, so nothing of it is shown.
func cause(err error, secret string) string {
	var parse *pgconn.ParseConfigError
	if errors.As(err, &parse) && errors.Unwrap(parse) != nil {
		err = errors.Unwrap(parse)
	}
	var bad *url.Error
	if errors.As(err, &bad) {
		err = bad.Err
	}
	text := err.Error()
	for _, part := range strings.FieldsFunc(secret, func(r rune) bool { return strings.ContainsRune(":/@?&= '", r) }) {
		if len(part) > 2 && strings.Contains(text, part) {
			return "wrong syntax"
		}
	}
	return text
}

// Redacted is the URL in a form that may be printed: user, host, port and database.
func (d Database) Redacted() string {
	cfg, err := pgx.ParseConfig(d.URL)
	if err != nil {
		return "(unreadable)"
	}
	u := url.URL{Scheme: "postgres", User: url.User(cfg.User), Path: "/" + cfg.Database}
	if strings.HasPrefix(cfg.Host, "/") {
		u.RawQuery = fmt.Sprintf("host=%s&port=%d", cfg.Host, cfg.Port)
	} else {
		u.Host = fmt.Sprintf("%s:%d", cfg.Host, cfg.Port)
	}
	return u.String()
}
