package secure

import (
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"walrelay/test/integration/fixture"
)

// Certificates of every kind.
func (w *world) testTLS(t *testing.T) {
	client := w.authority.Issue(t, "relay", time.Now().Add(time.Hour))
	pair := []string{"KAFKA_TLS_CERT_FILE=" + client.CertFile, "KAFKA_TLS_KEY_FILE=" + client.KeyFile}
	for name, c := range map[string]struct {
		listener string
		env      map[string]string
	}{
		"tls":                {"TLS", w.trust()},
		"tls-1.3":            {"TLS", w.trust("KAFKA_TLS_MIN_VERSION=1.3")},
		"client-certificate": {"MTLS", w.trust(pair...)},
		"server-name":        {"ELSEWHERE", w.trust("KAFKA_TLS_SERVER_NAME=kafka.internal")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			delivers(t, w.fixture(t, c.listener, c.env))
		})
	}
}

// Every way to log in.
func (w *world) testLogins(t *testing.T) {
	dir := t.TempDir()
	secret, token := inDir(dir, "password"), inDir(dir, "token")
	file(t, secret, []byte(password+"\n"))
	file(t, token, []byte(w.issuer.token(time.Hour, audience)+"\n"))
	user := []string{"KAFKA_SASL_USERNAME=relay", "KAFKA_SASL_PASSWORD=" + password}
	mechanism := func(name string, more ...string) map[string]string {
		return w.trust(append(more, "KAFKA_SASL_MECHANISM="+name)...)
	}
	for name, env := range map[string]map[string]string{
		"plain":              mechanism("PLAIN", user...),
		"scram-sha-256":      mechanism("SCRAM-SHA-256", user...),
		"scram-sha-512":      mechanism("SCRAM-SHA-512", user...),
		"password-file":      mechanism("SCRAM-SHA-512", "KAFKA_SASL_USERNAME=relay", "KAFKA_SASL_PASSWORD_FILE="+secret),
		"client-credentials": mechanism("OAUTHBEARER", w.client(password)...),
		"token-file":         mechanism("OAUTHBEARER", "KAFKA_SASL_OAUTH_TOKEN_FILE="+token),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			log := delivers(t, w.fixture(t, "LOGIN", env))
			if strings.Contains(log, `"level":"WARN"`) {
				t.Errorf("warnings:\n%s", log)
			}
		})
	}
	t.Run("without-tls", func(t *testing.T) {
		t.Parallel()
		env := mechanism("PLAIN", append(user, "KAFKA_TLS=", "KAFKA_TLS_CA_FILE=")...)
		f := fixture.New(t, fixture.To(w.kafka)) // whose reading of the environment fails for warnings
		for name, value := range env {
			f.Setenv(name, value)
		}
		f.Setenv("KAFKA_BROKERS", w.kafka.Listener(t, "OPEN"))
		expect(t, delivers(t, f), "sends the password over the network in clear text")
	})
}

// client is what a relay is told that gets its tokens from the issuer.
func (w *world) client(secret string) []string {
	return []string{"KAFKA_SASL_OAUTH_TOKEN_URL=" + w.issuer.url, "KAFKA_SASL_OAUTH_CLIENT_ID=relay", "KAFKA_SASL_OAUTH_CLIENT_SECRET=" + secret, "KAFKA_SASL_OAUTH_SCOPE=produce"}
}

// What is configured wrongly ends the program at its first connection.
func (w *world) testRefused(t *testing.T) {
	strange := w.stranger.Issue(t, "relay", time.Now().Add(time.Hour))
	login := func(mechanism string, more ...string) map[string]string {
		return w.trust(append([]string{"KAFKA_SASL_MECHANISM=" + mechanism, "KAFKA_SASL_USERNAME=relay", "KAFKA_SASL_PASSWORD=" + password}, more...)...)
	}
	token := func(more ...string) map[string]string {
		return w.trust(append(more, "KAFKA_SASL_MECHANISM=OAUTHBEARER")...)
	}
	wrong := "KAFKA_SASL_PASSWORD=another"
	for name, c := range map[string]struct {
		listener string
		env      map[string]string
		want     []string
	}{
		"wrong-ca":              {"TLS", w.trust("KAFKA_TLS_CA_FILE=" + w.stranger.File), []string{"unknown authority", "KAFKA_TLS_CA_FILE holds"}},
		"no-ca":                 {"TLS", w.trust("KAFKA_TLS_CA_FILE="), []string{"unknown authority", "give the authority", "KAFKA_TLS_CA_FILE"}},
		"wrong-name":            {"ELSEWHERE", w.trust(), []string{"127.0.0.1", "KAFKA_TLS_SERVER_NAME"}},
		"expired-broker":        {"EXPIRED", w.trust(), []string{"expired", "renew the broker's certificate"}},
		"no-certificate":        {"MTLS", w.trust(), []string{"certificate", "KAFKA_TLS_CERT_FILE"}},
		"strange-certificate":   {"MTLS", w.trust("KAFKA_TLS_CERT_FILE="+strange.CertFile, "KAFKA_TLS_KEY_FILE="+strange.KeyFile), []string{"certificate", "trusts the certificate of KAFKA_TLS_CERT_FILE"}},
		"plain-wrong-password":  {"LOGIN", login("PLAIN", wrong), []string{"SASL_AUTHENTICATION_FAILED", "KAFKA_SASL_USERNAME and KAFKA_SASL_PASSWORD"}},
		"scram-wrong-password":  {"LOGIN", login("SCRAM-SHA-256", wrong), []string{"SASL_AUTHENTICATION_FAILED", "KAFKA_SASL_PASSWORD"}},
		"unknown-user":          {"LOGIN", login("SCRAM-SHA-512", "KAFKA_SASL_USERNAME=nobody"), []string{"SASL_AUTHENTICATION_FAILED", "the user exists for SCRAM-SHA-512"}},
		"mechanism-not-offered": {"STRICT", login("SCRAM-SHA-256"), []string{"UNSUPPORTED_SASL_MECHANISM", "KAFKA_SASL_MECHANISM=SCRAM-SHA-256", "sasl.enabled.mechanisms"}},
		"login-not-asked-for":   {"TLS", login("SCRAM-SHA-256"), []string{"ILLEGAL_SASL_STATE", "take KAFKA_SASL_MECHANISM away"}},
		"wrong-client-secret":   {"LOGIN", token(w.client("another")...), []string{"401", "invalid_client", "KAFKA_SASL_OAUTH_CLIENT_SECRET"}},
		"token-for-others":      {"LOGIN", token("KAFKA_SASL_OAUTH_TOKEN=" + w.issuer.token(time.Hour, "others")), []string{"issuer, audience and scope"}},
		"token-expired":         {"LOGIN", token("KAFKA_SASL_OAUTH_TOKEN=" + w.issuer.token(-time.Hour, audience)), []string{"issuer, audience and scope"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			refuses(t, w.fixture(t, c.listener, c.env), c.want...)
		})
	}
}

// One side speaks TLS, or wants a login, and the other does not: that looks like an outage, so the relay
// waits, and says what it may be.
func (w *world) testMismatch(t *testing.T) {
	for name, c := range map[string]struct {
		listener string
		env      map[string]string
		want     string
	}{
		"plaintext-to-tls": {"TLS", nil, "KAFKA_TLS=true"},
		"tls-to-plaintext": {"", w.trust(), "KAFKA_TLS=false"},
		"no-login":         {"LOGIN", w.trust(), "KAFKA_SASL_MECHANISM"},
		"no-login-no-tls":  {"OPEN", nil, "KAFKA_SASL_MECHANISM"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := start(t, w.fixture(t, c.listener, c.env))
			await(t, r, "kafka unreachable", `"remedy":"`)
			_, remedy, _ := strings.Cut(r.Log(), `"remedy":"`)
			remedy, _, _ = strings.Cut(remedy, `"`)
			t.Log(remedy)
			expect(t, remedy, c.want)
			if !r.Running() {
				t.Error("the relay has ended")
			}
			r.Stop(t)
		})
	}
}

// A user that may write to one topic and not to another: the relay names the topic and what to allow, and
// goes on when it is allowed.
func (w *world) forbiddenTopic(t *testing.T) {
	const user = "limited"
	w.user(t, user, password)
	f := w.fixture(t, "LOGIN", w.trust("KAFKA_SASL_MECHANISM=SCRAM-SHA-512", "KAFKA_SASL_USERNAME="+user, "KAFKA_SASL_PASSWORD="+password))
	admin := kadm.NewClient(w.kafka.Client(t))
	ctx := fixture.Within(t, fixture.Limit)
	secret := f.Service + ".secret"
	if _, err := admin.CreateTopic(ctx, 1, 1, nil, secret); err != nil {
		t.Fatal(err)
	}
	deny := kadm.NewACLs().Deny("User:" + user).DenyHosts("*").Operations(kadm.OpWrite).Topics(secret).ResourcePatternType(kadm.ACLPatternLiteral)
	everybody := kadm.NewACLs().Allow("User:*").AllowHosts("*").Operations(kadm.OpAll).Topics(secret).ResourcePatternType(kadm.ACLPatternLiteral)
	for _, acl := range []*kadm.ACLBuilder{everybody, deny} {
		if _, err := admin.CreateACLs(ctx, acl); err != nil {
			t.Fatal(err)
		}
	}
	r := start(t, f).Ready(t)
	f.DB.Exec(t, insertRow)
	f.Events(t, 1)
	f.DB.Exec(t, `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, topic) VALUES ('Order', '42', 'OrderCreated', '`+secret+`')`)
	await(t, r, "topic cannot be written to", secret, "TOPIC_AUTHORIZATION_FAILED", "allow the relay's user Write on the topic")
	if _, err := admin.DeleteACLs(ctx, deny); err != nil {
		t.Fatal(err)
	}
	f.Events(t, 2)
	f.Settled(t)
	r.Stop(t)
}
