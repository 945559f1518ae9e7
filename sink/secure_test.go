package sink

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
)

func secretOf(value string) Secret { return Secret{value: value} }

// Each mistake is found before anything is opened, and said by the name of its variable.
func TestSecurityIsValidated(t *testing.T) {
	dir := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	text := file("text", "no PEM at all")
	encrypted := file("encrypted", "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n")
	for name, c := range map[string]struct {
		tls  TLSConfig
		sasl SASLConfig
		want []string // pieces, one for each problem, in their order
	}{
		"nothing":             {},
		"tls":                 {tls: TLSConfig{Enabled: true}},
		"file without tls":    {tls: TLSConfig{CAFile: text}, want: []string{"KAFKA_TLS_CA_FILE has no effect without KAFKA_TLS=true"}},
		"half a pair":         {tls: TLSConfig{Enabled: true, CertFile: text}, want: []string{"KAFKA_TLS_KEY_FILE is not set"}},
		"the other half":      {tls: TLSConfig{Enabled: true, KeyFile: text}, want: []string{"KAFKA_TLS_CERT_FILE is not set"}},
		"no such file":        {tls: TLSConfig{Enabled: true, CAFile: "/nowhere/ca"}, want: []string{"KAFKA_TLS_CA_FILE: open /nowhere/ca"}},
		"no certificates":     {tls: TLSConfig{Enabled: true, CAFile: text}, want: []string{"holds no certificate in PEM form"}},
		"no pair":             {tls: TLSConfig{Enabled: true, CertFile: text, KeyFile: text}, want: []string{"are no pair"}},
		"encrypted key":       {tls: TLSConfig{Enabled: true, CertFile: text, KeyFile: encrypted}, want: []string{"openssl pkey -in " + encrypted}},
		"old version":         {tls: TLSConfig{Enabled: true, MinVersion: "1.1"}, want: []string{`KAFKA_TLS_MIN_VERSION: "1.1" is unknown`}},
		"unknown mechanism":   {sasl: SASLConfig{Mechanism: "plain", Username: "u"}, want: []string{`KAFKA_SASL_MECHANISM: "plain" is unknown: use PLAIN`}},
		"mechanism alone":     {sasl: SASLConfig{Mechanism: "PLAIN"}, want: []string{"KAFKA_SASL_USERNAME is not set", "KAFKA_SASL_PASSWORD is not set"}},
		"user alone":          {sasl: SASLConfig{Username: "u", Password: secretOf("x")}, want: []string{"KAFKA_SASL_USERNAME has no effect", "KAFKA_SASL_PASSWORD has no effect"}},
		"user with a token":   {sasl: SASLConfig{Mechanism: "OAUTHBEARER", Username: "u", OAuth: OAuthConfig{Token: secretOf("x")}}, want: []string{"KAFKA_SASL_USERNAME has no effect with"}},
		"msk":                 {sasl: SASLConfig{Mechanism: "AWS_MSK_IAM"}},
		"oauth with nothing":  {sasl: SASLConfig{Mechanism: "OAUTHBEARER"}, want: []string{"KAFKA_SASL_OAUTH_TOKEN_URL is not set"}},
		"token and url":       {sasl: SASLConfig{Mechanism: "OAUTHBEARER", OAuth: OAuthConfig{Token: secretOf("x"), TokenURL: "https://i/t"}}, want: []string{"are both set"}},
		"url alone":           {sasl: SASLConfig{Mechanism: "OAUTHBEARER", OAuth: OAuthConfig{TokenURL: "https://i/t"}}, want: []string{"KAFKA_SASL_OAUTH_CLIENT_ID is not set", "KAFKA_SASL_OAUTH_CLIENT_SECRET is not set"}},
		"password in the url": {sasl: SASLConfig{Mechanism: "OAUTHBEARER", OAuth: OAuthConfig{TokenURL: "https://u:hunter22@i/t", ClientID: "c", ClientSecret: secretOf("x")}}, want: []string{"KAFKA_SASL_OAUTH_TOKEN_URL is not a URL"}},
		"token with Bearer":   {sasl: SASLConfig{Mechanism: "OAUTHBEARER", OAuth: OAuthConfig{Token: secretOf("Bearer hunter22")}}, want: []string{"KAFKA_SASL_OAUTH_TOKEN has a space"}},
		"extension":           {sasl: SASLConfig{Mechanism: "OAUTHBEARER", OAuth: OAuthConfig{Token: secretOf("x"), Extensions: map[string]string{"auth": "y"}}}, want: []string{`KAFKA_SASL_OAUTH_EXTENSIONS: "auth"`}},
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			errs := append(c.tls.Validate(), c.sasl.Validate()...)
			if len(errs) != len(c.want) {
				t.Fatalf("%d problems, want %d: %v", len(errs), len(c.want), errs)
			}
			for i, err := range errs {
				if !strings.Contains(err.Error(), c.want[i]) || strings.Contains(err.Error(), "hunter22") {
					t.Errorf("got %v, want %s", err, c.want[i])
				}
			}
		})
	}
}

func TestWarningsAboutClearText(t *testing.T) {
	for _, c := range []struct {
		tls  bool
		sasl SASLConfig
		want string
	}{
		{false, SASLConfig{}, ""},
		{true, SASLConfig{Mechanism: "PLAIN"}, ""},
		{false, SASLConfig{Mechanism: "PLAIN"}, "sends the password over the network in clear text"},
		{false, SASLConfig{Mechanism: "SCRAM-SHA-512"}, "the login is readable"},
		{false, SASLConfig{Mechanism: "OAUTHBEARER"}, "sends the token over the network in clear text"},
		{true, SASLConfig{Mechanism: "OAUTHBEARER", OAuth: OAuthConfig{TokenURL: "http://issuer/token"}}, "is not https"},
		{true, SASLConfig{Mechanism: "OAUTHBEARER", OAuth: OAuthConfig{TokenURL: "http://127.0.0.1/token"}}, ""},
	} {
		got := strings.Join(Config{TLS: TLSConfig{Enabled: c.tls}, SASL: c.sasl}.Warnings(), "\n")
		if c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%+v: %q, want %q", c, got, c.want)
		}
	}
}

func TestSecretsDoNotShow(t *testing.T) {
	cfg := Config{SASL: SASLConfig{Mechanism: "PLAIN", Password: secretOf("hunter22"), OAuth: OAuthConfig{Token: secretOf("hunter22"), ClientSecret: secretOf("hunter22")}}}
	var out bytes.Buffer
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x"} {
		fmt.Fprintf(&out, verb+"\n", cfg)
		fmt.Fprintf(&out, verb+"\n", &cfg.SASL.Password)
	}
	encoded, err := json.Marshal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	out.Write(encoded)
	slog.New(slog.NewTextHandler(&out, nil)).Info("config", "kafka", cfg, "password", cfg.SASL.Password)
	slog.New(slog.NewJSONHandler(&out, nil)).Info("config", "kafka", cfg, "password", cfg.SASL.Password)
	if text := out.String(); strings.Contains(text, "hunter22") || strings.Contains(text, fmt.Sprintf("%x", "hunter22")) {
		t.Errorf("printed:\n%s", text)
	}
}

// A secret's file is read for each login; one that cannot be read leaves the last value in use.
func TestSecretIsReadAgain(t *testing.T) {
	var log bytes.Buffer
	path := filepath.Join(t.TempDir(), "password")
	write := func(content string) {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := secretOf("first")
	s.FromFile(path)
	f := newSecretFile(s, "KAFKA_SASL_PASSWORD", slog.New(slog.NewTextHandler(&log, nil)))
	expect := func(want string, said int) {
		t.Helper()
		if got, n := f.read(), strings.Count(log.String(), "KAFKA_SASL_PASSWORD_FILE"); got != want || n != said {
			t.Errorf("got %q, want %q; said %d times, want %d", got, want, n, said)
		}
	}
	expect("first", 1) // the file is missing
	expect("first", 1)
	write("second\r\n")
	expect("second", 1)
	write("")
	expect("second", 2)
	write("third\n")
	expect("third", 2)
}

// refusals are what a connection can fail for because somebody is not trusted.
func TestRefusalsAreToldFromOutages(t *testing.T) {
	for err, want := range map[error]bool{
		fmt.Errorf("login: %w", kerr.SaslAuthenticationFailed):          true,
		kerr.UnsupportedSaslMechanism:                                   true,
		&net.OpError{Op: "remote error", Err: errors.New("tls: bad")}:   true,
		&tokenError{err: io.EOF, refused: true}:                         true,
		&tokenError{err: io.EOF}:                                        false,
		kerr.ClusterAuthorizationFailed:                                 false, // Fatal by its class
		&net.OpError{Op: "dial", Err: errors.New("connection refused")}: false,
		&kgo.ErrFirstReadEOF{}:                                          false,
		io.EOF:                                                          false,
		context.DeadlineExceeded:                                        false,
		kerr.NotLeaderForPartition:                                      false,
	} {
		if refused(err) != want {
			t.Errorf("%v: %v, want %v", err, !want, want)
		}
		if refused(err) && Classify(err) != Session {
			t.Errorf("%v: class %v: records must stay while the relay is refused", err, Classify(err))
		}
	}
}

// At first a refusal is a mistake; a relay that was accepted before waits for a minute.
func TestRefusedLoginEndsTheRelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := kgo.BrokerMetadata{NodeID: 1, Host: "kafka", Port: 9093}
		refusal := fmt.Errorf("%w: no", kerr.SaslAuthenticationFailed)
		var log bytes.Buffer
		start := func() *reach {
			return newReach(&Config{SASL: SASLConfig{Mechanism: "PLAIN"}}, slog.New(slog.NewTextHandler(&log, nil)))
		}
		ended := func(r *reach) error {
			select {
			case err := <-r.fatal:
				return err
			default:
				return nil
			}
		}
		r := start()
		r.OnBrokerRead(node, 36, 0, 0, 0, nil) // the answer that refuses is an answer
		r.OnBrokerConnect(node, 0, nil, refusal)
		if err := ended(r); err == nil || !errors.Is(err, kerr.SaslAuthenticationFailed) || !strings.Contains(err.Error(), "KAFKA_SASL_PASSWORD") {
			t.Errorf("first login: %v", err)
		}

		r = start()
		r.OnBrokerRead(node, 3, 0, 0, 0, nil)
		time.Sleep(trust)
		r.OnBrokerConnect(node, 0, nil, refusal)
		time.Sleep(refusedWait - time.Second)
		r.OnBrokerConnect(node, 0, nil, refusal)
		if err := ended(r); err != nil {
			t.Errorf("ended within the wait: %v", err)
		}
		r.OnBrokerRead(node, 3, 0, 0, 0, nil) // let in
		time.Sleep(refusedWait)
		r.OnBrokerConnect(node, 0, nil, refusal)
		if err := ended(r); err != nil {
			t.Errorf("ended by an old refusal: %v", err)
		}
		time.Sleep(refusedWait / 2)
		r.OnBrokerConnect(node, 0, nil, &net.OpError{Op: "dial", Err: errors.New("connection refused")}) // an outage in between
		time.Sleep(refusedWait / 2)
		r.OnBrokerConnect(node, 0, nil, refusal)
		if err := ended(r); err != nil {
			t.Errorf("an outage counts as a refusal: %v", err)
		}
		time.Sleep(refusedWait)
		r.OnBrokerConnect(node, 0, nil, refusal)
		if err := ended(r); err == nil {
			t.Error("refused for longer than the wait, and goes on")
		}
	})
}

// authenticate is what kgo does with a mechanism, up to the first message.
func authenticate(t *testing.T, m sasl.Mechanism, host string) (string, error) {
	t.Helper()
	_, message, err := m.Authenticate(t.Context(), host)
	return string(message), err
}
