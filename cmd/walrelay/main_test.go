package main

import (
	"bytes"
	"encoding/json"
	"net"
	nethttp "net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"walrelay/internal/config"
	"walrelay/test/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Run(m)) }

// call runs one command line with nothing in the environment but env.
func call(t *testing.T, env map[string]string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	for _, s := range config.Settings() {
		unset(t, s.Name)
	}
	for name, value := range env {
		t.Setenv(name, value)
	}
	var out, errs bytes.Buffer
	code = execute(t.Context(), args, &out, &errs)
	return code, out.String(), errs.String()
}

// unset is t.Setenv's missing half.
func unset(t *testing.T, name string) {
	t.Setenv(name, "") // restores it at the end
	if err := os.Unsetenv(name); err != nil {
		t.Fatal(err)
	}
}

func TestExitCodes(t *testing.T) {
	good := map[string]string{"DATABASE_URL": "postgres://relay:hunter22@127.0.0.1:1/shop", "KAFKA_BROKERS": "127.0.0.1:1"}
	for _, c := range []struct {
		args string
		env  map[string]string
		code int
		want string // in what it prints
	}{
		{"", nil, exitOK, "walrelay migrate up"},
		{"--help", nil, exitOK, "Exit codes:"},
		{"version", nil, exitOK, "walrelay "},
		{"config", nil, exitOK, "REPLICATION_SLOT"},
		{"config --check", good, exitOK, "ok: public.outbox of postgres://relay@127.0.0.1:1/shop to 127.0.0.1:1"},
		{"config --check", nil, exitConfig, "2 problems"},
		{"run", map[string]string{"KAFKA_LINGER": "x"}, exitConfig, "3 problems"},
		{"run", map[string]string{"DATABASE_URL": "postgres://db/shop", "KAFKA_BROKERS": "k:9092", "LOG_FORMAT": "xml"}, exitConfig, "1 problem;"},
		{"rnu", nil, exitConfig, `did you mean run?`},
		{"run now", nil, exitConfig, "takes no arguments"},
		{"run --fast", nil, exitConfig, "walrelay run --help"},
		{"migrate dwon", nil, exitConfig, "unknown command"},
		{"config --check --json", nil, exitConfig, "do not go together"},
		{"demo --rate 0", nil, exitConfig, "--rate"},
		{"demo --for x", nil, exitConfig, "--for"},
		{"migrate print", nil, exitOK, `create table "public"."outbox"`},
		{"migrate print --payload text", map[string]string{"OUTBOX_TABLE": "sales.events"}, exitOK, `create table "sales"."events"`},
		{"migrate print --payload xml", nil, exitConfig, "jsonb, json, text or bytea"},
		{"migrate role --name r", map[string]string{"RELAY_AFTER_PUBLISH": "delete"}, exitOK, `delete on "public"."outbox" to "r"`},
		{"migrate up", nil, exitConfig, "DATABASE_URL (or DATABASE_URL_FILE) is not set"},
		{"migrate up", good, exitFailure, "check DATABASE_URL"},
		{"healthcheck", map[string]string{"HTTP_ADDR": "127.0.0.1:1", "KAFKA_LINGER": "x"}, exitFailure, "no relay answers on 127.0.0.1:1"},
		{"healthcheck", map[string]string{"HTTP_ADDR": "off"}, exitConfig, "nobody to ask"},
	} {
		t.Run(c.args, func(t *testing.T) {
			code, stdout, stderr := call(t, c.env, strings.Fields(c.args)...)
			if code != c.code || !strings.Contains(stdout+stderr, c.want) {
				t.Errorf("exit code %d, want %d and %q\n%s%s", code, c.code, c.want, stdout, stderr)
			}
			if strings.Contains(stdout+stderr, "hunter22") {
				t.Error("the password was printed")
			}
			if code != exitOK && stdout != "" {
				t.Errorf("a failure printed to standard output: %s", stdout)
			}
		})
	}
}

func TestEveryCommandTeaches(t *testing.T) {
	for _, cmd := range newRoot().Commands() {
		if cmd.Short == "" || cmd.Long == "" && cmd.Name() != "version" {
			t.Errorf("%s has no help", cmd.Name())
		}
	}
}

func TestConfigAsJSON(t *testing.T) {
	_, stdout, _ := call(t, nil, "config", "--json")
	var all []struct{ Name, Default, Meaning string }
	if err := json.Unmarshal([]byte(stdout), &all); err != nil || len(all) != len(config.Settings()) {
		t.Errorf("%d settings, %v", len(all), err)
	}
}

func TestHealthcheckAsksTheRightQuestion(t *testing.T) {
	server := httptest.NewServer(nethttp.HandlerFunc(func(w nethttp.ResponseWriter, r *nethttp.Request) {
		if r.URL.Path == "/readyz" {
			nethttp.Error(w, "no message for 20s", nethttp.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write([]byte("ok\n"))
	}))
	defer server.Close()
	_, port, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	// Everywhere is asked here, and a proxy has no part in it.
	env := map[string]string{"HTTP_ADDR": ":" + port, "HTTP_PROXY": "http://127.0.0.1:1"}
	if code, stdout, stderr := call(t, env, "healthcheck"); code != exitOK || stdout != "ok\n" {
		t.Errorf("%d %q %q", code, stdout, stderr)
	}
	if code, _, stderr := call(t, env, "healthcheck", "--ready"); code != exitFailure || !strings.Contains(stderr, "not well: no message for 20s") {
		t.Errorf("%d %q", code, stderr)
	}
}
