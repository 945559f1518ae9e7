package secure

import (
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"walrelay/test/integration/fixture"
)

// A relay runs on while its client certificate is replaced: first by one that cannot be used, then by
// one of another name. The broker knows which it is: it stops the first name from writing.
func (w *world) rotatedCertificate(t *testing.T) {
	dir := t.TempDir()
	cert, key := inDir(dir, "tls.crt"), inDir(dir, "tls.key")
	first, second := w.authority.Issue(t, "first", time.Now().Add(time.Hour)), w.authority.Issue(t, "second", time.Now().Add(time.Hour))
	copied(t, first.CertFile, cert)
	copied(t, first.KeyFile, key)
	f := w.fixture(t, "MTLS", w.trust("KAFKA_TLS_CERT_FILE="+cert, "KAFKA_TLS_KEY_FILE="+key))
	r := start(t, f).Ready(t)
	f.DB.Exec(t, insertRow)
	f.Events(t, 1)

	copied(t, second.CertFile, cert) // and not its key yet
	w.mtls.Cut()
	f.DB.Exec(t, insertRow)
	await(t, r, "new certificates cannot be used: the old ones stay in use", "are no pair")
	f.Events(t, 2)
	w.mtls.Cut()
	f.DB.Exec(t, insertRow)
	f.Events(t, 3)
	if n := strings.Count(r.Log(), "new certificates cannot be used"); n != 1 {
		t.Errorf("said %d times that the certificate does not fit", n)
	}

	copied(t, second.KeyFile, key)
	deny := kadm.NewACLs().Deny("User:CN=first").DenyHosts("*").Allow("User:*").AllowHosts("*").
		Operations(kadm.OpAll).Topics(f.Service).ResourcePatternType(kadm.ACLPatternPrefixed)
	if _, err := kadm.NewClient(w.kafka.Client(t)).CreateACLs(fixture.Within(t, fixture.Limit), deny); err != nil {
		t.Fatal(err)
	}
	w.mtls.Cut()
	f.DB.Exec(t, insertRow)
	f.Events(t, 4)
	await(t, r, "new certificates are in use")
	f.Settled(t)
	r.Stop(t)
}

// The password is changed at the broker first and in the relay's file some seconds later; the broker
// wants logins renewed meanwhile. The relay says that it is refused, and goes on by itself.
func (w *world) rotatedPassword(t *testing.T) {
	const user, renewed = "rotated", password + "-2"
	w.user(t, user, password)
	path := inDir(t.TempDir(), "password")
	file(t, path, []byte(password))
	f := w.fixture(t, "RENEW", w.trust("KAFKA_SASL_MECHANISM=SCRAM-SHA-512", "KAFKA_SASL_USERNAME="+user, "KAFKA_SASL_PASSWORD_FILE="+path))
	r := start(t, f).Ready(t)
	f.DB.Exec(t, insertRow)
	f.Events(t, 1)

	w.user(t, user, renewed)
	w.renew.Cut()
	f.DB.Exec(t, insertRow)
	await(t, r, "SASL_AUTHENTICATION_FAILED", `"wait":60000000000`)
	if !r.Running() {
		t.Fatal("the relay has ended")
	}
	file(t, path, []byte(renewed))
	f.Events(t, 2)
	await(t, r, "kafka reachable again")
	f.Settled(t)
	r.Stop(t)
	if n := strings.Count(r.Log(), "kafka unreachable"); n > 2 { // cut, and refused
		t.Errorf("said %d times that kafka cannot be reached", n)
	}
}

// Tokens of four seconds: the broker wants each login renewed before its token ends, with a new one.
func (w *world) renewedToken(t *testing.T) {
	// Not in parallel: the lifetime is that of all tokens.
	w.issuer.lifetime.Store(int64(4 * time.Second))
	defer w.issuer.lifetime.Store(int64(time.Hour))
	asked := w.issuer.asked.Load()
	f := w.fixture(t, "LOGIN", w.trust(append(w.client(password), "KAFKA_SASL_MECHANISM=OAUTHBEARER")...))
	r := start(t, f).Ready(t)
	written := 0
	for limit := time.Now().Add(fixture.Limit); w.issuer.asked.Load() < asked+3; written++ {
		if time.Now().After(limit) {
			t.Fatalf("%d tokens were asked for", w.issuer.asked.Load()-asked)
		}
		f.DB.Exec(t, insertRow)
		time.Sleep(50 * time.Millisecond) // a relay that writes now and then
	}
	f.Events(t, written)
	f.Settled(t)
	r.Stop(t)
	if strings.Contains(r.Log(), `"level":"WARN"`) {
		t.Errorf("warnings while tokens were renewed:\n%s", r.Log())
	}
}
