package secure

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/big"
	nethttp "net/http"
	"net/http/httptest"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"
)

const (
	audience   = "kafka-tests"
	issuerName = "tests"
)

// issuer is a token endpoint whose tokens the broker trusts: it signs them with a key of which the
// broker has the public half in a file.
type issuer struct {
	url  string
	keys string // URL of the file with the public key

	key      *rsa.PrivateKey
	lifetime atomic.Int64 // of the next tokens
	asked    atomic.Int64 // how often tokens were given out
}

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	i := &issuer{key: key}
	i.lifetime.Store(int64(time.Hour))
	path := filepath.Join(t.TempDir(), "keys.json")
	set := map[string]any{"keys": []any{map[string]string{
		"kty": "RSA", "kid": "1", "alg": "RS256", "use": "sig",
		"n": part(key.N.Bytes()), "e": part(big.NewInt(int64(key.E)).Bytes()),
	}}}
	file(t, path, marshal(t, set))
	i.keys = "file://" + path
	server := httptest.NewServer(nethttp.HandlerFunc(i.serve))
	t.Cleanup(server.Close)
	i.url = server.URL + "/token"
	return i
}

func (i *issuer) serve(w nethttp.ResponseWriter, r *nethttp.Request) {
	user, secret, _ := r.BasicAuth()
	w.Header().Set("Content-Type", "application/json")
	if user != "relay" || r.FormValue("grant_type") != "client_credentials" || secret != "s3cr3t-Pass%3Dw%2Crd" { // form encoded, by RFC 6749
		w.WriteHeader(nethttp.StatusUnauthorized)
		fmt.Fprintf(w, `{"error":"invalid_client","error_description":"no: %s"}`, secret)
		return
	}
	lifetime := time.Duration(i.lifetime.Load())
	i.asked.Add(1)
	fmt.Fprintf(w, `{"access_token":%q,"token_type":"Bearer","expires_in":%d}`, i.token(lifetime, audience), int(lifetime.Seconds()))
}

// token is a JWT for user relay.
func (i *issuer) token(lifetime time.Duration, audience string) string {
	now := time.Now()
	head := part([]byte(`{"alg":"RS256","kid":"1","typ":"JWT"}`))
	body := part(fmt.Appendf(nil, `{"sub":"relay","iss":%q,"aud":%q,"iat":%d,"exp":%d,"scope":"produce"}`, issuerName, audience, now.Unix(), now.Add(lifetime).Unix()))
	digest := sha256.Sum256([]byte(head + "." + body))
	signature, err := rsa.SignPKCS1v15(rand.Reader, i.key, crypto.SHA256, digest[:])
	if err != nil {
		panic(err) // a key that has just signed
	}
	return head + "." + body + "." + part(signature)
}

func part(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

func marshal(t *testing.T, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
