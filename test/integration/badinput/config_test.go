package badinput

import (
	"strings"
	"testing"
)

// Everything that is wrong with the environment is said at once, by the variables' names, before
// anything is opened: no server runs here.
func TestConfiguration(t *testing.T) {
	t.Parallel()
	needed := []string{"DATABASE_URL=postgres://me:" + secret + "@127.0.0.1:1/shop", "KAFKA_BROKERS=127.0.0.1:1"}
	for _, c := range []struct {
		name    string
		environ []string
		want    []string // pieces of the lines, one line each, in this order
	}{
		{
			name: "nothing set",
			want: []string{"DATABASE_URL (or DATABASE_URL_FILE) is not set", "KAFKA_BROKERS is not set"},
		},
		{
			name:    "three wrong variables",
			environ: append(needed, "RELAY_AFTER_PUBLISH=burn", "KAFKA_LINGER=fast", "REPLICATION_SLOTT=orders"),
			want: []string{
				`KAFKA_LINGER: "fast" is not a duration: write a number and a unit, such as 500ms`,
				`RELAY_AFTER_PUBLISH: "burn" is unknown: use mark, delete or keep`,
				"REPLICATION_SLOTT is unknown: did you mean REPLICATION_SLOT?",
			},
		},
		{
			name: "one of each kind",
			environ: append(needed, "LOG_LEVEL=loud", "KAFKA_TOPIC_CREATE=maybe", "KAFKA_MAX_MESSAGE_BYTES=1MB", "RELAY_MEMORY_LIMIT=lots",
				"HTTP_ADDR=8080", "REPLICATION_SLOT=My-Slot", "OUTBOX_TABLE=a.b.c", "ROUTER_TOPIC_MAP=order", "KAFKA_COMPRESSION=rar", "RELAY_SHUTDOWN_TIMEOUT=1h"),
			want: []string{"RELAY_MEMORY_LIMIT", "KAFKA_MAX_MESSAGE_BYTES", "KAFKA_TOPIC_CREATE", "LOG_LEVEL", "OUTBOX_TABLE",
				"RELAY_SHUTDOWN_TIMEOUT", "REPLICATION_SLOT", "ROUTER_TOPIC_MAP", "KAFKA_COMPRESSION", "HTTP_ADDR"},
		},
		{
			name:    "unknown variable of ours",
			environ: append(needed, "RELAY_SPEED=fast"),
			want:    []string{`RELAY_SPEED is unknown: "walrelay config" lists every variable`},
		},
		{
			name:    "broker without a port",
			environ: []string{needed[0], "KAFKA_BROKERS=kafka-1:9092,kafka-2"},
			want:    []string{`KAFKA_BROKERS: "kafka-2": not an address: write host:port, for instance kafka-1:9092`},
		},
		{
			name: "security of kafka",
			environ: append(needed, "KAFKA_TLS_CA_FILE=/nowhere/ca.pem", "KAFKA_SASL_MECHANISM=SCRAM-SHA-512", "KAFKA_SASL_PASSWORD="+secret,
				"KAFKA_SASL_OAUTH_CLIENT_SECRET="+secret),
			want: []string{"KAFKA_TLS_CA_FILE has no effect without KAFKA_TLS=true", "KAFKA_SASL_USERNAME is not set: KAFKA_SASL_MECHANISM=SCRAM-SHA-512 needs it",
				"KAFKA_SASL_OAUTH_CLIENT_SECRET has no effect with KAFKA_SASL_MECHANISM=SCRAM-SHA-512"},
		},
		{
			name:    "half a client certificate",
			environ: append(needed, "KAFKA_TLS=true", "KAFKA_TLS_CERT_FILE=/nowhere/tls.crt"),
			want:    []string{"KAFKA_TLS_KEY_FILE is not set"},
		},
		{
			name:    "certificate file missing",
			environ: append(needed, "KAFKA_TLS=true", "KAFKA_TLS_CA_FILE=/nowhere/ca.pem"),
			want:    []string{"KAFKA_TLS_CA_FILE: open /nowhere/ca.pem: no such file or directory"},
		},
		{
			name:    "secret file missing",
			environ: []string{"DATABASE_URL_FILE=/nowhere/url", needed[1]},
			want:    []string{"DATABASE_URL_FILE: open /nowhere/url: no such file or directory"},
		},
	} {
		t.Run(strings.ReplaceAll(c.name, " ", "-"), func(t *testing.T) {
			t.Parallel()
			checkProblems(t, c.environ, c.want)
		})
	}
}

// A URL that cannot be read may hold the password anywhere: nothing of it is printed.
func TestMalformedURL(t *testing.T) {
	t.Parallel()
	for name, url := range map[string]string{
		"slash in the password":   "postgres://me:" + secret + "/x@127.0.0.1:5432/shop",
		"percent in the password": "postgres://me:" + secret + "%zz@127.0.0.1:5432/shop",
		"space in the password":   "postgres://me:" + secret + " x@127.0.0.1:port/shop",
		"bad port":                "postgres://me:" + secret + "@127.0.0.1:port/shop",
		"no scheme":               "me:" + secret + "@127.0.0.1/shop",
		"another database":        "mysql://me:" + secret + "@127.0.0.1/shop",
		"keyword without value":   "host=127.0.0.1 password=" + secret + " user",
		"unclosed quote":          "host=127.0.0.1 password='" + secret,
		"bad sslmode":             "postgres://me:" + secret + "@127.0.0.1/shop?sslmode=" + secret,
		"bad parameter":           "postgres://me:" + secret + "@127.0.0.1/shop?connect_timeout=" + secret,
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			t.Parallel()
			environ := []string{"DATABASE_URL=" + url, "KAFKA_BROKERS=127.0.0.1:1", "HTTP_ADDR=127.0.0.1:0"}
			want := []string{"DATABASE_URL cannot be read"}
			checkProblems(t, environ, want)
			for _, args := range [][]string{{"config"}, {"migrate", "up"}, {"migrate", "status"}, {"migrate", "print"}} {
				run(t, environ, args...).Code(t) // prints no password; see run
			}
		})
	}
}

func checkProblems(t *testing.T, environ, want []string) {
	t.Helper()
	for _, args := range [][]string{{"run"}, {"config", "--check"}} {
		r := run(t, environ, args...)
		if code := r.Code(t); code != 2 {
			t.Errorf("%v: exit code %d, want 2", args, code)
		}
		lines := strings.Split(strings.TrimSpace(r.Log()), "\n")
		if len(lines) != len(want)+1 {
			t.Errorf("%v: %d lines, want a heading and %d problems", args, len(lines), len(want))
		}
		for _, piece := range want {
			if n := strings.Count("\n"+strings.Join(lines, "\n"), "\n  "+piece); n != 1 {
				t.Errorf("%v: %d lines begin with %q", args, n, piece)
			}
		}
	}
}
