// Package secure holds tests with a real Apache Kafka that lets nobody in who cannot show who he is: TLS
// with certificates of every kind, logins by each mechanism that a broker of one's own can have, and
// what is printed where they are wrong. All of it runs with the built program.
package secure

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"walrelay/test/harness"
	"walrelay/test/harness/kraft"
	"walrelay/test/integration/fixture"
)

func TestMain(m *testing.M) { os.Exit(fixture.Run(m)) }

const (
	// password is that of user "relay" in PLAIN and SCRAM, and the secret of client "relay" at the token
	// endpoint. No output may hold it.
	password = "s3cr3t-Pass=w,rd"

	insertRow = `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ('Order', '42', 'OrderCreated', '{}')`
)

// world is one broker with a listener of each kind, and those who vouch for its clients.
type world struct {
	kafka     *harness.Cluster
	authority *harness.Authority // of the broker and of its clients
	stranger  *harness.Authority // whom the broker does not know
	issuer    *issuer

	mtls  *harness.Proxy // before listener MTLS
	renew *harness.Proxy // before listener RENEW
}

// A broker takes five seconds to start, so it is one for all; each test has its own database, topics and
// users.
func TestSecured(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a server: not with -short")
	}
	w := &world{authority: harness.NewAuthority(t, "walrelay test"), stranger: harness.NewAuthority(t, "a stranger"), issuer: newIssuer(t),
		mtls: harness.NewProxy(t), renew: harness.NewProxy(t)}
	valid := time.Now().Add(time.Hour)
	good := w.authority.Issue(t, "kafka", valid, "127.0.0.1").Both
	tls := func(keystore string) map[string]string {
		return map[string]string{"ssl.keystore.type": "PEM", "ssl.keystore.location": keystore,
			"ssl.truststore.type": "PEM", "ssl.truststore.location": w.authority.File}
	}
	login := func(settings map[string]string) map[string]string {
		const module = "org.apache.kafka.common.security."
		all := map[string]string{
			"sasl.enabled.mechanisms":                        "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
			"plain.sasl.jaas.config":                         module + `plain.PlainLoginModule required user_relay="` + password + `";`,
			"scram-sha-256.sasl.jaas.config":                 module + "scram.ScramLoginModule required;",
			"scram-sha-512.sasl.jaas.config":                 module + "scram.ScramLoginModule required;",
			"oauthbearer.sasl.jaas.config":                   module + "oauthbearer.OAuthBearerLoginModule required;",
			"oauthbearer.connections.max.reauth.ms":          "3600000", // the broker wants a new token before the old one ends
			"oauthbearer.sasl.server.callback.handler.class": module + "oauthbearer.OAuthBearerValidatorCallbackHandler",
		}
		for name, value := range settings {
			all[name] = value
		}
		return all
	}
	renew := login(tls(good))
	for _, mechanism := range []string{"plain", "scram-sha-256", "scram-sha-512"} {
		renew[mechanism+".connections.max.reauth.ms"] = "2000"
	}
	mutual := tls(good)
	mutual["ssl.client.auth"] = "required"
	strict := login(tls(good))
	strict["sasl.enabled.mechanisms"] = "SCRAM-SHA-512"
	w.kafka = harness.OwnKafka(t,
		harness.Listener(kraft.Listener{Name: "TLS", Protocol: "SSL", Settings: tls(good)}),
		harness.Listener(kraft.Listener{Name: "MTLS", Protocol: "SSL", Advertised: w.mtls.Addr(), Settings: mutual}),
		harness.Listener(kraft.Listener{Name: "ELSEWHERE", Protocol: "SSL", Settings: tls(w.authority.Issue(t, "kafka", valid, "kafka.internal").Both)}),
		harness.Listener(kraft.Listener{Name: "EXPIRED", Protocol: "SSL", Settings: tls(w.authority.Issue(t, "kafka", time.Now().Add(-time.Minute), "127.0.0.1").Both)}),
		harness.Listener(kraft.Listener{Name: "LOGIN", Protocol: "SASL_SSL", Settings: login(tls(good))}),
		harness.Listener(kraft.Listener{Name: "OPEN", Protocol: "SASL_PLAINTEXT", Settings: login(nil)}),
		harness.Listener(kraft.Listener{Name: "STRICT", Protocol: "SASL_SSL", Settings: strict}),
		harness.Listener(kraft.Listener{Name: "RENEW", Protocol: "SASL_SSL", Advertised: w.renew.Addr(), Settings: renew}),
		// Who comes in by the plain listener, as the tests themselves do, may do everything.
		harness.BrokerSetting("authorizer.class.name", "org.apache.kafka.metadata.authorizer.StandardAuthorizer"),
		harness.BrokerSetting("super.users", "User:ANONYMOUS"),
		harness.BrokerSetting("allow.everyone.if.no.acl.found", "true"),
		harness.BrokerSetting("sasl.oauthbearer.jwks.endpoint.url", w.issuer.keys),
		harness.BrokerSetting("sasl.oauthbearer.expected.audience", audience),
		harness.BrokerSetting("sasl.oauthbearer.expected.issuer", issuerName),
		harness.JavaProperty("org.apache.kafka.sasl.oauthbearer.allowed.urls", w.issuer.keys),
	)
	w.mtls.To(w.kafka.Behind(t, "MTLS"))
	w.renew.To(w.kafka.Behind(t, "RENEW"))
	w.user(t, "relay", password)

	t.Run("cases", func(t *testing.T) { // until all that run in parallel have ended
		w.testTLS(t)
		w.testLogins(t)
		w.testRefused(t)
		w.testMismatch(t)
		t.Run("forbidden-topic", w.forbiddenTopic)
		t.Run("rotated-certificate", w.rotatedCertificate)
		t.Run("rotated-password", w.rotatedPassword)
		t.Run("renewed-token", w.renewedToken)
	})
}

// user gives a user of both SCRAM mechanisms a password.
func (w *world) user(t *testing.T, name, password string) {
	t.Helper()
	admin := kadm.NewClient(w.kafka.Client(t))
	for _, mechanism := range []kadm.ScramMechanism{kadm.ScramSha256, kadm.ScramSha512} { // a request may name a user once
		user := kadm.UpsertSCRAM{User: name, Mechanism: mechanism, Iterations: 4096, Password: password}
		altered, err := admin.AlterUserSCRAMs(fixture.Within(t, fixture.Limit), nil, []kadm.UpsertSCRAM{user})
		if err == nil {
			err = altered.Error()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// fixture is a relay that is told to go to a listener; "" is the plain one.
func (w *world) fixture(t *testing.T, listener string, env map[string]string) *fixture.Fixture {
	t.Helper()
	options := []fixture.Option{fixture.To(w.kafka)}
	if listener != "" {
		options = append(options, fixture.Set("KAFKA_BROKERS", w.kafka.Listener(t, listener)))
	}
	for name, value := range env {
		options = append(options, fixture.Set(name, value))
	}
	return fixture.New(t, options...)
}

// trust is an environment with TLS that trusts the broker's authority, and more.
func (w *world) trust(more ...string) map[string]string {
	env := map[string]string{"KAFKA_TLS": "true", "KAFKA_TLS_CA_FILE": w.authority.File}
	for _, m := range more {
		name, value, _ := strings.Cut(m, "=")
		if value == "" {
			delete(env, name)
			continue
		}
		env[name] = value
	}
	return env
}

// delivers runs the program until two events are on Kafka, and stops it in order.
func delivers(t *testing.T, f *fixture.Fixture) string {
	t.Helper()
	r := start(t, f).Ready(t)
	f.DB.Exec(t, insertRow)
	f.DB.Exec(t, insertRow)
	f.Events(t, 2)
	f.Settled(t)
	r.Stop(t)
	return r.Log()
}

// start starts the program and sees to it that it prints no secret.
func start(t *testing.T, f *fixture.Fixture) *fixture.Binary {
	t.Helper()
	r := f.Binary(t)
	t.Cleanup(func() {
		if strings.Contains(r.Log(), password) {
			t.Errorf("the password was printed:\n%s", r.Log())
		}
	})
	return r
}

// refuses runs the program, which must end with exit code 1 and one line that holds the pieces.
func refuses(t *testing.T, f *fixture.Fixture, pieces ...string) {
	t.Helper()
	r := start(t, f)
	if code := r.Code(t); code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	lines := strings.Split(strings.TrimSpace(r.Log()), "\n")
	message := lines[len(lines)-1]
	t.Log(message)
	expect(t, message, append(pieces, "walrelay: ")...)
}

func expect(t *testing.T, text string, pieces ...string) {
	t.Helper()
	for _, piece := range pieces {
		if !strings.Contains(text, piece) {
			t.Errorf("no %q in: %s", piece, text)
		}
	}
}

// await waits until the program has printed all pieces.
func await(t *testing.T, r *fixture.Binary, pieces ...string) {
	t.Helper()
	limit := time.After(fixture.Limit)
	for _, piece := range pieces {
		for !strings.Contains(r.Log(), piece) {
			select {
			case <-time.After(10 * time.Millisecond): // a log is looked at, it does not call
			case <-limit:
				t.Fatalf("never printed: %s", piece)
			}
		}
	}
}

// file writes content where the relay reads it, whole at once as an operator should.
func file(t *testing.T, path string, content []byte) {
	t.Helper()
	next := path + ".next"
	if err := os.WriteFile(next, content, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, path); err != nil {
		t.Fatal(err)
	}
}

func copied(t *testing.T, from, to string) {
	t.Helper()
	content, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	file(t, to, content)
}

func inDir(dir, name string) string { return filepath.Join(dir, name) }
