package config

import (
	"errors"
	"flag"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the table of settings into the README")

// least is an environment with nothing but what has no default.
func least(more ...string) []string {
	return append([]string{"DATABASE_URL=postgres://relay:hunter22@db.internal:5433/shop", "KAFKA_BROKERS=k1:9092,k2:9092", "HOME=/home/me"}, more...)
}

func TestDefaults(t *testing.T) {
	cfg, warnings, err := Load(least("LOG_LEVEL=debug"))
	if err != nil || len(warnings) != 0 {
		t.Fatalf("%v, warnings %q", err, warnings)
	}
	if cfg.Outbox.Table != "public.outbox" || cfg.Outbox.Columns.EventID != "event_id" || cfg.Router.Topic != "{service}.{aggregate}.{event}" ||
		cfg.Replication.Slot != "walrelay" || cfg.HTTP.Addr != "127.0.0.1:8080" || cfg.Log.Level != slog.LevelDebug ||
		len(cfg.Kafka.Brokers) != 2 || cfg.Relay.MemoryLimit != 64<<20 {
		t.Errorf("got %+v", cfg)
	}
}

func TestEveryProblemAtOnceByNameOfTheVariable(t *testing.T) {
	_, _, err := Load([]string{
		"DATABASE_URL=postgres://relay:hunter22@db:port/shop",
		"KAFKA_BROKERS=",
		"KAFKA_LINGER=soon",
		"KAFKA_TOPIC_CREATE=perhaps",
		"KAFKA_TOPIC_PARTITIONS=many",
		"KAFKA_COMPRESSION=rar",
		"RELAY_MEMORY_LIMIT=lots",
		"RELAY_SHUTDOWN_TIMEOUT=1h",
		"LOG_LEVEL=loud",
		"LOG_FORMAT=xml",
		"HTTP_ADDR=here",
		"ROUTER_TPIC={service}",
		"OUTBOX_COLUM_ID=nr",
		"RELAY_COLOUR=red",
		"OUTBOX_TABLE=a.b.c",
	})
	var problems Problems
	if !errors.As(err, &problems) {
		t.Fatalf("got %v", err)
	}
	text := err.Error()
	for _, want := range []string{
		"DATABASE_URL cannot be read", "KAFKA_BROKERS is not set: ", `KAFKA_LINGER: "soon" is not a duration`,
		`KAFKA_TOPIC_CREATE: "perhaps" is neither true nor false`, `KAFKA_TOPIC_PARTITIONS: "many" is not a whole number`,
		"KAFKA_COMPRESSION: ", `RELAY_MEMORY_LIMIT: "lots" is not a size`, "RELAY_SHUTDOWN_TIMEOUT: 1h0m0s is out of range",
		`LOG_LEVEL: "loud" is unknown`, `LOG_FORMAT: "xml"`, `HTTP_ADDR: "here"`,
		"ROUTER_TPIC is unknown: did you mean ROUTER_TOPIC?", "OUTBOX_COLUM_ID is unknown: did you mean OUTBOX_COLUMN_ID?",
		"RELAY_COLOUR is unknown", `OUTBOX_TABLE: "a.b.c" is not a table name`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("not reported: %s", want)
		}
	}
	if lines := strings.Count(text, "\n") + 1; lines != 15 || len(problems) != 15 {
		t.Errorf("%d lines, %d problems for 15 mistakes:\n%s", lines, len(problems), text)
	}
	if strings.Contains(text, "hunter22") {
		t.Errorf("the password is printed:\n%s", text)
	}
}

func TestNothingSetNamesBothRequired(t *testing.T) {
	_, _, err := Load(nil)
	text := err.Error()
	if strings.Count(text, "\n") != 1 || !strings.Contains(text, "DATABASE_URL (or DATABASE_URL_FILE) is not set") || !strings.Contains(text, "KAFKA_BROKERS is not set") {
		t.Errorf("got %s", text)
	}
}

// Where DATABASE_URL is not set, libpq's variables say where the server is.
func TestDatabaseByLibpqsVariables(t *testing.T) {
	t.Setenv("PGHOST", "db.internal")
	t.Setenv("PGUSER", "relay")
	t.Setenv("PGDATABASE", "shop")
	t.Setenv("PGPASSWORD", "hunter22")
	cfg, _, err := Load([]string{"KAFKA_BROKERS=k:9092", "PGHOST=db.internal"})
	if err != nil || cfg.Database.Redacted() != "postgres://relay@db.internal:5432/shop" {
		t.Errorf("%s, %v", cfg.Database.Redacted(), err)
	}
	t.Setenv("PGSSLMODE", "hunter22")
	if _, _, err := Load([]string{"KAFKA_BROKERS=k:9092", "PGHOST=db.internal"}); err == nil || strings.Contains(err.Error(), "hunter22") {
		t.Errorf("unreadable: %v", err)
	}
	if _, _, err := Load(least("PGHOST=db.internal", "PGSSLMODE=wrong")); err == nil {
		t.Error("DATABASE_URL is read together with libpq's variables, and a wrong one is not reported")
	}
	if _, _, err := Load([]string{"KAFKA_BROKERS=k:9092", "PGUSER=relay"}); err == nil || !strings.Contains(err.Error(), "PGHOST") {
		t.Errorf("no server: %v", err)
	}
}

func TestVariablesOfOthersDoNotStopTheRelay(t *testing.T) {
	_, warnings, err := Load(least("KAFKA_HOME=/opt/kafka", "KAFKA_HEAP_OPTS=-Xmx1g", "HTTP_PROXY=http://proxy:3128", "LOG_DIR=/var/log",
		"OUTBOX_SERVICE_HOST=10.0.0.1", "OUTBOX_SERVICE_PORT_HTTP=80", "OUTBOX_PORT=tcp://10.0.0.1:80", "RELAY_PORT_80_TCP_ADDR=10.0.0.1",
		"KAFKA_PORT_9092_TCP=tcp://10.0.0.1:9092", "DATABASE_NAME=shop"))
	if err != nil {
		t.Fatal(err)
	}
	if len(warnings) != 2 || !strings.HasPrefix(warnings[0], "KAFKA_HEAP_OPTS ") || !strings.HasPrefix(warnings[1], "KAFKA_HOME ") {
		t.Errorf("warnings: %q", warnings)
	}
	for _, typo := range []string{"KAFKA_BROKER=k:9092", "DATABASE_URI=x", "HTTP_ADRESS=:1", "LOG_LEVLE=info", "DATABASE_URL_FIL=/x"} {
		name, _, _ := strings.Cut(typo, "=")
		if _, _, err := Load(least(typo)); (err == nil) != (name == "HTTP_ADRESS") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestSecretsFromFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "url")
	if err := os.WriteFile(path, []byte("postgres://relay@db/fromfile\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, _, err := Load([]string{"DATABASE_URL_FILE=" + path, "KAFKA_BROKERS=k:9092"})
	if err != nil || cfg.Database.URL != "postgres://relay@db/fromfile" {
		t.Errorf("%q, %v", cfg.Database.URL, err)
	}
	if _, _, err := Load(least("DATABASE_URL_FILE=" + path)); err == nil || !strings.Contains(err.Error(), "both set") {
		t.Errorf("both: %v", err)
	}
	if _, _, err := Load([]string{"DATABASE_URL_FILE=" + path + "x", "KAFKA_BROKERS=k:9092"}); err == nil || !strings.Contains(err.Error(), "DATABASE_URL_FILE: open ") {
		t.Errorf("missing: %v", err)
	}
}

func TestPasswordsNeverPrint(t *testing.T) {
	for _, url := range []string{
		"postgres://relay:hunter22@db:port/shop",
		"postgres://relay:hunter22@db:99999999/shop",
		"postgres://relay:hunter22%zz@db/shop",
		"postgres://relay:hunter22@db/shop?sslmode=hunter22",
		"postgres://relay:hunter22@[::1/shop",
		"postgre://relay:hunter22@db/shop",
		"host=db password=hunter22 port=x",
		"host=db password='hunter22 port=1",
		"host=db user=a password=hunter22 connect_timeout=hunter22",
		"hunter22",
	} {
		d := Database{URL: url}
		errs := d.Validate()
		if len(errs) == 0 {
			t.Errorf("%q was accepted", url)
		}
		if text := errors.Join(errs...); text != nil && strings.Contains(text.Error(), "hunter22") {
			t.Errorf("%q: %v", url, text)
		}
		if strings.Contains(d.Redacted(), "hunter22") {
			t.Errorf("%q: redacted as %s", url, d.Redacted())
		}
	}
	for url, want := range map[string]string{
		"postgres://relay:hunter22@db.internal:5433/shop":    "postgres://relay@db.internal:5433/shop",
		"host=/run/pg user=relay password=hunter22 dbname=s": "postgres://relay@/s?host=/run/pg&port=5432",
	} {
		if got := (Database{URL: url}).Redacted(); got != want {
			t.Errorf("redacted %s, want %s", got, want)
		}
	}
}

// Each setting is defined once and whole.
func TestSettingsAreComplete(t *testing.T) {
	seen := map[string]bool{}
	required := 0
	for _, s := range Settings() {
		if seen[s.Name] {
			t.Errorf("%s is defined twice", s.Name)
		}
		seen[s.Name] = true
		if s.Required {
			required++
		}
		if !strings.HasSuffix(s.Doc, ".") || s.Required && s.Default != "" {
			t.Errorf("%s: default %q, doc %q", s.Name, s.Default, s.Doc)
		}
		if !hasPrefix(s.Name, ownPrefixes) && !hasPrefix(s.Name, sharedPrefixes) {
			t.Errorf("%s has a prefix that the check of misspelt names does not know", s.Name)
		}
	}
	if required != 2 {
		t.Errorf("%d settings are required, DATABASE_URL and KAFKA_BROKERS alone should be", required)
	}
}

func TestReadmeHasTheTable(t *testing.T) {
	const path, begin, end = "../../README.md", "<!-- settings: go test ./internal/config -update -->\n", "<!-- end of settings -->"
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(content), begin)
	old, after, closed := strings.Cut(rest, end)
	if !found || !closed {
		t.Fatalf("README.md has lost %q or %q", begin, end)
	}
	switch {
	case old == Markdown():
	case *update:
		if err := os.WriteFile(path, []byte(before+begin+Markdown()+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Error("the table of settings in README.md is old: go test ./internal/config -update")
	}
}
