// Package config reads the environment: every package's own Config, joined into one. What can be set,
// with default and meaning, is defined once, on the fields of those structs; the table of
// "walrelay config", the README and the check of misspelt names are made from them.
package config

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/caarlos0/env/v11"

	"walrelay/internal/http"
	"walrelay/outbox"
	"walrelay/polling"
	"walrelay/relay"
	"walrelay/replication"
	"walrelay/router"
	"walrelay/sink"
)

// Config is everything that can be set. The name of a field is the group that a setting is listed in.
type Config struct {
	Database    Database
	Relay       relay.Config
	Outbox      outbox.Config
	Replication replication.Config
	Polling     polling.Config
	Router      router.Config
	Kafka       sink.Config
	HTTP        http.Config
	Log         Log
}

// Log says what is logged, to standard error.
type Log struct {
	Level  slog.Level `env:"LOG_LEVEL" envDefault:"info" doc:"Least level that is logged: debug, info, warn or error."`
	Format string     `env:"LOG_FORMAT" envDefault:"text" doc:"Form of a log line: text or json."`
}

// Validate reports a format that nobody can write.
func (l Log) Validate() []error {
	if l.Format != "text" && l.Format != "json" {
		return []error{fmt.Errorf("LOG_FORMAT: %q is unknown: use text or json", l.Format)}
	}
	return nil
}

// Problems are all that is wrong with an environment, in the order of the table of settings. Each
// begins with the name of the variable.
type Problems []error

func (p Problems) Error() string { return errors.Join(p...).Error() }

func (p Problems) Unwrap() []error { return p }

// Load reads the configuration from an environment as os.Environ gives it. It opens nothing but the
// files of secrets and certificates. The error is of type Problems and holds every problem there is; that one of the
// optional variables is not set is none, whatever its definition says. Warnings are about variables
// that are probably somebody else's.
func Load(environ []string, optional ...string) (cfg Config, warnings []string, err error) {
	vars := env.ToMap(environ)
	var problems Problems
	unknown, warnings := judgeUnknown(vars)
	if byLibpq(vars) {
		optional = append(slices.Clone(optional), "DATABASE_URL")
		if err := checkLibpq(); err != nil {
			problems = append(problems, err)
		}
	}
	files, unreadable := readSecretFiles(vars)
	problems = append(problems, unreadable...)
	problems = append(problems, parse(&cfg, vars, optional)...)
	tellFiles(&cfg, files)
	problems = append(problems, validate(&cfg)...)
	problems = append(problems, unknown...)
	if len(problems) > 0 {
		return cfg, warnings, problems
	}
	return cfg, append(warnings, cfg.Kafka.Warnings()...), nil
}

// parse fills cfg. The library names the field of a bad value and not the variable, so each variable
// is first read alone; bad ones are left out of the reading of all, and keep their defaults there.
func parse(cfg *Config, vars map[string]string, optional []string) Problems {
	var problems Problems
	good := maps.Clone(vars)
	for _, s := range Settings() {
		value := vars[s.Name]
		if value == "" {
			unreadable := s.Secret && vars[s.Name+"_FILE"] != "" // which has been said
			if s.Required && !unreadable && !slices.Contains(optional, s.Name) {
				problems = append(problems, s.missing())
			}
			continue
		}
		var alone Config
		if err := parseError(&alone, map[string]string{s.Name: value}); err != nil {
			problems = append(problems, s.explain(value, err))
			delete(good, s.Name)
		}
	}
	if err := parseError(cfg, good); err != nil {
		panic(fmt.Sprintf("config: a default cannot be read: %v", err)) // our own bug, and the tests' to find
	}
	return problems
}

// parseError reads vars and returns the first value that cannot be read. What is required and not
// set is no matter here.
func parseError(cfg *Config, vars map[string]string) error {
	err := env.ParseWithOptions(cfg, env.Options{Environment: vars})
	var all env.AggregateError
	if !errors.As(err, &all) {
		return err
	}
	for _, err := range all.Errors {
		var unset env.VarIsNotSetError
		var empty env.EmptyVarError
		if !errors.As(err, &unset) && !errors.As(err, &empty) {
			return err
		}
	}
	return nil
}

func (s Setting) missing() error {
	file := ""
	if s.Secret {
		file = " (or " + s.Name + "_FILE)"
	}
	return fmt.Errorf("%s%s is not set: %s", s.Name, file, s.Doc)
}

// explain says what form the value should have had.
func (s Setting) explain(value string, err error) error {
	shown := fmt.Sprintf("%q", value)
	if s.Secret {
		shown = "the value"
	}
	switch s.kind {
	case reflect.TypeFor[bool]():
		return fmt.Errorf("%s: %s is neither true nor false", s.Name, shown)
	case durationType:
		return fmt.Errorf("%s: %s is not a duration: write a number and a unit, such as 500ms, 10s or 5m", s.Name, shown)
	case reflect.TypeFor[slog.Level]():
		return fmt.Errorf("%s: %s is unknown: use debug, info, warn or error", s.Name, shown)
	}
	switch s.kind.Kind() {
	case reflect.Int, reflect.Int16, reflect.Int32, reflect.Int64:
		if _, own := reflect.New(s.kind).Interface().(interface{ UnmarshalText([]byte) error }); !own {
			return fmt.Errorf("%s: %s is not a whole number, or too large", s.Name, shown)
		}
	}
	if s.Secret {
		return fmt.Errorf("%s: the value cannot be read", s.Name)
	}
	// What the library says around the cause names a Go field.
	var perr env.ParseError
	if errors.As(err, &perr) {
		err = perr.Err
	}
	return fmt.Errorf("%s: %w", s.Name, err)
}

// validate asks each part what cannot work together although it could be read.
func validate(cfg *Config) Problems {
	var problems Problems
	if _, err := outbox.ParseTable(cfg.Outbox.Table); err != nil {
		problems = append(problems, fmt.Errorf("OUTBOX_TABLE: %w", err))
	}
	parts := reflect.ValueOf(cfg).Elem()
	for i := range parts.NumField() {
		if v, ok := parts.Field(i).Addr().Interface().(interface{ Validate() []error }); ok {
			problems = append(problems, v.Validate()...)
		}
	}
	return problems
}

// readSecretFiles puts the contents of NAME_FILE into NAME, for settings that are secrets, and returns
// the paths by NAME.
func readSecretFiles(vars map[string]string) (map[string]string, Problems) {
	var problems Problems
	files := make(map[string]string)
	for _, s := range Settings() {
		path := vars[s.Name+"_FILE"]
		if !s.Secret || path == "" {
			continue
		}
		if vars[s.Name] != "" {
			problems = append(problems, fmt.Errorf("%s and %s_FILE are both set: keep one", s.Name, s.Name))
			continue
		}
		content, err := os.ReadFile(path)
		value := strings.TrimRight(string(content), "\r\n")
		switch {
		case err != nil:
			problems = append(problems, fmt.Errorf("%s_FILE: %w", s.Name, err))
		case value == "":
			problems = append(problems, fmt.Errorf("%s_FILE: %s is empty", s.Name, path))
		default:
			vars[s.Name] = value
			files[s.Name] = path
		}
	}
	return files, problems
}

// tellFiles tells the secrets that can be read again where they come from.
func tellFiles(cfg *Config, files map[string]string) {
	for _, s := range Settings() {
		if path := files[s.Name]; path != "" {
			field := reflect.ValueOf(cfg).Elem().FieldByIndex(s.index).Addr().Interface()
			if secret, ok := field.(interface{ FromFile(path string) }); ok {
				secret.FromFile(path)
			}
		}
	}
}
