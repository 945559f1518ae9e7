// Package migrations is the SQL that walrelay brings along: the outbox table, its publication and a
// role with the least privilege. The files are templates: names follow OUTBOX_TABLE, OUTBOX_COLUMN_*
// and REPLICATION_PUBLICATION.
package migrations

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"text/template"
	"unicode"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"walrelay/outbox"
)

//go:embed *.sql
var files embed.FS

// nameLimit is what PostgreSQL keeps of a name, in bytes (NAMEDATALEN - 1).
const nameLimit = 63

// Options say what the SQL is about.
type Options struct {
	Table       outbox.Table
	Columns     outbox.Columns
	Publication string
	// Payload is the type of the payload column: jsonb, json, text or bytea. Empty means jsonb for a
	// table to be made, and any for one that is there.
	Payload string
	// Notify asks for the trigger that wakes a relay which polls. Without it its migration is left out.
	Notify bool
	// Polling is RELAY_MODE=polling: nothing is streamed, so the role needs no REPLICATION and the server no
	// logical replication.
	Polling bool
	// Retention is OUTBOX_RETENTION: the role deletes what was published long ago.
	Retention bool
}

// Migration is one numbered file, rendered.
type Migration struct {
	Version  int
	Name     string // "0001_outbox"
	Makes    string // what it creates, for people: "table public.outbox"
	SQL      string
	Optional bool   // applied only where the options ask for it
	Checksum string // of the file before names were filled in
}

// view is what the templates see. Names that end in SQL are quoted; the others are for comments.
type view struct {
	Table, TableSQL             string
	Schema                      string
	Col                         outbox.Columns // quoted
	Payload                     string
	UnpublishedIndex            string
	NotifyFunction              string
	Publication, PublicationSQL string
	RoleName, Role, RoleLiteral string
	AfterPublish                string
	Polling, Retention          bool
}

func newView(o Options) (view, error) {
	if err := o.validate(); err != nil {
		return view{}, err
	}
	payload := o.Payload
	if payload == "" {
		payload = "jsonb"
	}
	return view{
		Table: o.Table.String(), TableSQL: o.Table.SQL(), Schema: quote(o.Table.Schema),
		Col: quoteColumns(o.Columns), Payload: payload,
		UnpublishedIndex: quote(suffixed(o.Table.Name, "_unpublished")),
		NotifyFunction:   pgx.Identifier{o.Table.Schema, suffixed(o.Table.Name, "_notify")}.Sanitize(),
		Publication:      o.Publication, PublicationSQL: quote(o.Publication),
	}, nil
}

func (o Options) validate() error {
	switch o.Payload {
	case "", "jsonb", "json", "text", "bytea":
	default:
		return fmt.Errorf("payload type %q: choose jsonb, json, text or bytea", o.Payload)
	}
	c := o.Columns
	for _, name := range []string{o.Table.Schema, o.Table.Name, o.Publication, c.ID, c.EventID, c.AggregateType,
		c.AggregateID, c.EventType, c.Payload, c.Headers, c.Topic, c.PartitionKey, c.CreatedAt, c.PublishedAt} {
		if err := validateName(name); err != nil {
			return err
		}
	}
	return nil
}

// validateName refuses what cannot be a name, and control characters: names also stand in comments.
func validateName(name string) error {
	switch {
	case name == "":
		return errors.New("the name of a table, column, publication or role is empty")
	case len(name) > nameLimit:
		return fmt.Errorf("%q is longer than %d bytes", name, nameLimit)
	case !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl):
		return fmt.Errorf("%q is not a name: it holds control characters", name)
	}
	return nil
}

func quote(name string) string { return pgx.Identifier{name}.Sanitize() }

func quoteColumns(c outbox.Columns) outbox.Columns {
	return outbox.Columns{
		ID: quote(c.ID), EventID: quote(c.EventID), AggregateType: quote(c.AggregateType),
		AggregateID: quote(c.AggregateID), EventType: quote(c.EventType), Payload: quote(c.Payload),
		Headers: quote(c.Headers), Topic: quote(c.Topic), PartitionKey: quote(c.PartitionKey),
		CreatedAt: quote(c.CreatedAt), PublishedAt: quote(c.PublishedAt),
	}
}

// suffixed appends to a name what must survive PostgreSQL's cut at 63 bytes.
func suffixed(name, suffix string) string {
	if room := nameLimit - len(suffix); len(name) > room {
		for room > 0 && !utf8.RuneStart(name[room]) {
			room--
		}
		name = name[:room]
	}
	return name + suffix
}

// All returns the migrations in order.
func All(o Options) ([]Migration, error) {
	v, err := newView(o)
	if err != nil {
		return nil, err
	}
	names, err := fs.Glob(files, "0*.sql") // sorted
	if err != nil {
		return nil, err
	}
	var all []Migration
	for _, name := range names {
		m, err := load(name, v)
		if err != nil {
			return nil, fmt.Errorf("read migration %s: %w", name, err)
		}
		if m.Version != len(all)+1 {
			return nil, fmt.Errorf("migration %s: number %d was expected", name, len(all)+1)
		}
		all = append(all, m)
	}
	return all, nil
}

func load(name string, v view) (Migration, error) {
	source, err := files.ReadFile(name)
	if err != nil {
		return Migration{}, err
	}
	text, err := render(name, string(source), v)
	if err != nil {
		return Migration{}, err
	}
	number, _, _ := strings.Cut(name, "_")
	version, err := strconv.Atoi(number)
	if err != nil {
		return Migration{}, err
	}
	first, _, _ := strings.Cut(text, "\n")
	makes, found := strings.CutPrefix(first, "-- makes: ")
	if !found {
		return Migration{}, errors.New(`its first line is not "-- makes: …"`)
	}
	sum := sha256.Sum256(source)
	return Migration{
		Version: version, Name: strings.TrimSuffix(name, ".sql"), Makes: makes, SQL: text, Optional: version == notifyVersion,
		Checksum: hex.EncodeToString(sum[:]),
	}, nil
}

func render(name, source string, v view) (string, error) {
	t, err := template.New(name).Option("missingkey=error").Parse(source)
	if err != nil {
		return "", err
	}
	var out bytes.Buffer
	if err := t.Execute(&out, v); err != nil {
		return "", err
	}
	return out.String(), nil
}

// notifyVersion is the migration that Options.Notify asks for.
const notifyVersion = 3

// Print returns the SQL of every migration that the options ask for, for those who apply it by their own means.
func Print(o Options) (string, error) {
	all, err := All(o)
	if err != nil {
		return "", err
	}
	var out strings.Builder
	for i, m := range all {
		if m.Optional && !o.Notify {
			continue
		}
		if i > 0 {
			out.WriteString("\n")
		}
		fmt.Fprintf(&out, "-- %s\n%s", m.Name, m.SQL)
	}
	return out.String(), nil
}

// Role returns the SQL for a role that may do what the relay does with the given
// RELAY_AFTER_PUBLISH (mark, delete or keep), and nothing else.
func Role(o Options, role, afterPublish string) (string, error) {
	v, err := newView(o)
	if err != nil {
		return "", err
	}
	if err := validateName(role); err != nil {
		return "", err
	}
	switch afterPublish {
	case "mark", "delete", "keep":
	default:
		return "", fmt.Errorf("after publish %q: choose mark, delete or keep", afterPublish)
	}
	v.RoleName, v.Role, v.RoleLiteral = role, quote(role), literal(role)
	v.AfterPublish, v.Polling, v.Retention = afterPublish, o.Polling, o.Retention
	source, err := files.ReadFile("role.sql")
	if err != nil {
		return "", err
	}
	return render("role.sql", string(source), v)
}

// literal quotes a string that holds no control characters; a backslash is itself in an SQL literal
// (standard_conforming_strings).
func literal(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }
