package sink

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	signer "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	mskHost   = "b-1.shop.abc123.c2.kafka.eu-west-1.amazonaws.com"
	mskRegion = "eu-west-1"
)

// verify is MSK's half of the login: it signs the request that the payload describes by AWS's own
// implementation, and compares. It returns who has signed.
func verify(payload, host, region string, secrets map[string]string) (accessKey string, err error) {
	var sent map[string]string
	if err := json.Unmarshal([]byte(payload), &sent); err != nil {
		return "", fmt.Errorf("read the payload: %w", err)
	}
	if sent["version"] != "2020_10_22" || sent["action"] != "kafka-cluster:Connect" || sent["host"] != host || sent["user-agent"] != "walrelay" {
		return "", fmt.Errorf("payload %v", sent)
	}
	at, err := time.Parse("20060102T150405Z", sent["x-amz-date"])
	if err != nil || time.Since(at).Abs() > time.Minute {
		return "", fmt.Errorf("signed at %q", sent["x-amz-date"])
	}
	accessKey, _, _ = strings.Cut(sent["x-amz-credential"], "/")
	query := url.Values{"Action": {sent["action"]}, "X-Amz-Expires": {sent["x-amz-expires"]}}
	req, err := http.NewRequest(http.MethodGet, "kafka://"+host+"/?"+query.Encode(), nil)
	if err != nil {
		return "", err
	}
	const nothing = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" // SHA-256 of an empty body
	signed, _, err := signer.NewSigner().PresignHTTP(req.Context(),
		aws.Credentials{AccessKeyID: accessKey, SecretAccessKey: secrets[accessKey], SessionToken: sent["x-amz-security-token"]},
		req, nothing, "kafka-cluster", region, at)
	if err != nil {
		return "", err
	}
	u, err := url.Parse(signed)
	if err != nil {
		return "", err
	}
	if want := u.Query().Get("X-Amz-Signature"); sent["x-amz-signature"] != want {
		return "", fmt.Errorf("signature %s, want %s", sent["x-amz-signature"], want)
	}
	return accessKey, nil
}

// isolate takes away whatever credentials this machine may have.
func isolate(t *testing.T) {
	for _, v := range os.Environ() {
		if name, value, _ := strings.Cut(v, "="); strings.HasPrefix(name, "AWS_") {
			t.Setenv(name, value) // which restores it
			os.Unsetenv(name)
		}
	}
	nowhere := filepath.Join(t.TempDir(), "none")
	t.Setenv("AWS_CONFIG_FILE", nowhere)
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", nowhere)
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
}

// Every source of credentials that the SDK knows and a relay can have.
func TestMSKSignsWithWhatItFinds(t *testing.T) {
	secrets := map[string]string{"AKENV": "secret-env", "AKFILE": "secret-file", "AKROLE": "secret-role", "AKNODE": "secret-node"}
	expires := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	for name, c := range map[string]struct {
		prepare func(t *testing.T)
		want    string
	}{
		"environment": {func(t *testing.T) {
			t.Setenv("AWS_ACCESS_KEY_ID", "AKENV")
			t.Setenv("AWS_SECRET_ACCESS_KEY", "secret-env")
			t.Setenv("AWS_SESSION_TOKEN", "session+/=")
		}, "AKENV"},
		"shared-file": {func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "credentials")
			if err := os.WriteFile(path, []byte("[relay]\naws_access_key_id = AKFILE\naws_secret_access_key = secret-file\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			t.Setenv("AWS_SHARED_CREDENTIALS_FILE", path)
			t.Setenv("AWS_PROFILE", "relay")
		}, "AKFILE"},
		"web-identity": {func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "token")
			if err := os.WriteFile(path, []byte("a-service-account"), 0o600); err != nil {
				t.Fatal(err)
			}
			sts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.FormValue("Action") != "AssumeRoleWithWebIdentity" || r.FormValue("WebIdentityToken") != "a-service-account" || r.FormValue("RoleArn") != "arn:aws:iam::1:role/relay" {
					t.Errorf("asked for %v", r.Form)
				}
				fmt.Fprintf(w, `<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult><Credentials><AccessKeyId>AKROLE</AccessKeyId>`+
					`<SecretAccessKey>secret-role</SecretAccessKey><SessionToken>s</SessionToken><Expiration>%s</Expiration></Credentials>`+
					`</AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>`, expires)
			}))
			t.Cleanup(sts.Close)
			t.Setenv("AWS_REGION", mskRegion)
			t.Setenv("AWS_ROLE_ARN", "arn:aws:iam::1:role/relay")
			t.Setenv("AWS_WEB_IDENTITY_TOKEN_FILE", path)
			t.Setenv("AWS_ENDPOINT_URL_STS", sts.URL)
		}, "AKROLE"},
		"instance-role": {func(t *testing.T) {
			metadata := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch r.URL.Path {
				case "/latest/api/token":
					w.Header().Set("X-Aws-Ec2-Metadata-Token-Ttl-Seconds", "60")
					fmt.Fprint(w, "t")
				case "/latest/meta-data/iam/security-credentials/":
					fmt.Fprint(w, "relay")
				case "/latest/meta-data/iam/security-credentials/relay":
					fmt.Fprintf(w, `{"Code":"Success","AccessKeyId":"AKNODE","SecretAccessKey":"secret-node","Token":"n","Expiration":%q}`, expires)
				default:
					http.NotFound(w, r)
				}
			}))
			t.Cleanup(metadata.Close)
			t.Setenv("AWS_EC2_METADATA_DISABLED", "false")
			t.Setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", metadata.URL)
		}, "AKNODE"},
	} {
		t.Run(name, func(t *testing.T) {
			isolate(t)
			c.prepare(t)
			payload, err := authenticate(t, mskMechanism(), mskHost+":9098")
			if err != nil {
				t.Fatal(err)
			}
			if who, err := verify(payload, mskHost, mskRegion, secrets); who != c.want || err != nil {
				t.Errorf("signed by %q, want %q: %v", who, c.want, err)
			}
		})
	}
}

func TestMSKWithoutCredentials(t *testing.T) {
	isolate(t)
	_, err := authenticate(t, mskMechanism(), mskHost+":9098")
	cfg := Config{SASL: SASLConfig{Mechanism: mechanismMSK}}
	if !refused(err) || !strings.Contains(cfg.remedy(err), "AWS_ACCESS_KEY_ID") {
		t.Errorf("got %v: %s", err, cfg.remedy(err))
	}
}

// A name that says nothing of a region: a private link, a tunnel.
func TestMSKWithoutRegion(t *testing.T) {
	isolate(t)
	t.Setenv("AWS_ACCESS_KEY_ID", "AKENV")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret-env")
	_, err := authenticate(t, mskMechanism(), "kafka.internal:9098")
	cfg := Config{SASL: SASLConfig{Mechanism: mechanismMSK}}
	if !refused(err) || !strings.Contains(cfg.remedy(err), "AWS_REGION") {
		t.Errorf("got %v: %s", err, cfg.remedy(err))
	}
}

// The whole login of a producer: kfake plays the listener of MSK that verifies the signature.
func TestMSKLogin(t *testing.T) {
	isolate(t)
	t.Setenv("AWS_REGION", mskRegion) // for a host outside of amazonaws.com
	t.Setenv("AWS_ACCESS_KEY_ID", "AKENV")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret-env")
	k := startFake(t)
	k.create(t, "t", 1, nil)
	var logins atomic.Int64
	k.fake.ControlKey(int16(kmsg.SASLHandshake), func(req kmsg.Request) (kmsg.Response, error, bool) {
		k.fake.KeepControl()
		resp := req.ResponseKind().(*kmsg.SASLHandshakeResponse)
		if req.(*kmsg.SASLHandshakeRequest).Mechanism != "AWS_MSK_IAM" {
			resp.ErrorCode = kerr.UnsupportedSaslMechanism.Code
		}
		return resp, nil, true
	})
	k.fake.ControlKey(int16(kmsg.SASLAuthenticate), func(req kmsg.Request) (kmsg.Response, error, bool) {
		k.fake.KeepControl()
		resp := req.ResponseKind().(*kmsg.SASLAuthenticateResponse)
		who, err := verify(string(req.(*kmsg.SASLAuthenticateRequest).SASLAuthBytes), "127.0.0.1", mskRegion, map[string]string{"AKENV": "secret-env"})
		if err != nil || who != "AKENV" {
			t.Errorf("signed by %q: %v", who, err)
			resp.ErrorCode = kerr.SaslAuthenticationFailed.Code
			return resp, nil, true
		}
		logins.Add(1)
		resp.SASLAuthBytes = []byte(`{"version":"2020_10_22","request-id":"1"}`)
		return resp, nil, true
	})
	p := start(t, k, func(c *Config) { c.SASL.Mechanism = mechanismMSK })
	p.send(1, "t", "k", "v")
	if failed := p.acks.wait(t, 1); len(failed) > 0 || logins.Load() == 0 {
		t.Errorf("%d logins, failed: %v", logins.Load(), failed)
	}
}
