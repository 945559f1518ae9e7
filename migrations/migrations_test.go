package migrations

import (
	"strings"
	"testing"

	"github.com/caarlos0/env/v11"

	"walrelay/outbox"
)

// defaults are the options that an empty environment gives.
func defaults(t *testing.T) Options {
	t.Helper()
	var c outbox.Config
	if err := env.ParseWithOptions(&c, env.Options{Environment: map[string]string{}}); err != nil {
		t.Fatal(err)
	}
	table, err := outbox.ParseTable(c.Table)
	if err != nil {
		t.Fatal(err)
	}
	return Options{Table: table, Columns: c.Columns, Publication: "walrelay"}
}

func TestNamesFollowTheOptionsAndAreQuoted(t *testing.T) {
	o := defaults(t)
	o.Table = outbox.Table{Schema: "Sales", Name: `odd"name`}
	o.Publication = "my pub"
	o.Columns.EventID = "uid"
	o.Payload = "bytea"
	sql, err := Print(o)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`create table "Sales"."odd""name" (`, `"uid" uuid not null`, `"payload" bytea,`,
		`create index "odd""name_unpublished" on "Sales"."odd""name" ("id")`,
		`create publication "my pub" for table "Sales"."odd""name"`,
		"publish = 'insert', publish_via_partition_root = true",
	} {
		if !strings.Contains(sql, want) {
			t.Errorf("the SQL lacks %s\n%s", want, sql)
		}
	}
}

func TestBadOptionsAreRefused(t *testing.T) {
	for name, spoil := range map[string]func(*Options){
		"payload type":    func(o *Options) { o.Payload = "xml" },
		"line break":      func(o *Options) { o.Table.Name = "a\ndrop table b" },
		"empty column":    func(o *Options) { o.Columns.Topic = "" },
		"long":            func(o *Options) { o.Publication = strings.Repeat("p", 64) },
		"not UTF-8":       func(o *Options) { o.Columns.ID = "\xff" },
		"no table at all": func(o *Options) { o.Table = outbox.Table{} },
	} {
		o := defaults(t)
		spoil(&o)
		if _, err := All(o); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestIndexNameSurvivesTheCut(t *testing.T) {
	long := strings.Repeat("é", 31) // 62 bytes
	got := suffixed(long, "_unpublished")
	if want := strings.Repeat("é", 25) + "_unpublished"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := suffixed("outbox", "_unpublished"); got != "outbox_unpublished" {
		t.Errorf("got %q", got)
	}
}

func TestRoleSaysWhatEachModeNeeds(t *testing.T) {
	for mode, want := range map[string]string{
		"mark":   `grant select, update ("published_at") on "public"."outbox" to "re'lay"`,
		"delete": `grant select, update ("published_at"), delete on "public"."outbox" to "re'lay"`,
		"keep":   `grant select on "public"."outbox" to "re'lay"`,
	} {
		sql, err := Role(defaults(t), "re'lay", mode)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(sql, want) || !strings.Contains(sql, `rolname = 're''lay'`) {
			t.Errorf("%s: the SQL lacks %s\n%s", mode, want, sql)
		}
	}
	if _, err := Role(defaults(t), "relay", "burn"); err == nil {
		t.Error("an unknown mode was accepted")
	}
}
