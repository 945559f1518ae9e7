package sink

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// endpoint is a token endpoint that gives out token 1, token 2 and so on, or fails.
type endpoint struct {
	*httptest.Server
	asked    atomic.Int64
	status   atomic.Int64 // 200 gives a token
	lifetime atomic.Int64 // seconds; 0: it does not say
	form     atomic.Pointer[http.Request]
}

func newEndpoint(t *testing.T) *endpoint {
	e := &endpoint{}
	e.status.Store(http.StatusOK)
	e.lifetime.Store(3600)
	e.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := e.asked.Add(1)
		if err := r.ParseForm(); err != nil {
			t.Error(err)
		}
		e.form.Store(r)
		w.Header().Set("Content-Type", "application/json")
		if status := int(e.status.Load()); status != http.StatusOK {
			w.WriteHeader(status)
			fmt.Fprint(w, `{"error":"invalid_client","error_description":"hunter22"}`)
			return
		}
		expires := ""
		if s := e.lifetime.Load(); s > 0 {
			expires = fmt.Sprintf(`,"expires_in":%d`, s)
		}
		fmt.Fprintf(w, `{"access_token":"token-%d","token_type":"Bearer"%s}`, n, expires)
	}))
	t.Cleanup(e.Close)
	return e
}

func (e *endpoint) config() OAuthConfig {
	return OAuthConfig{TokenURL: e.URL + "/token", ClientID: "relay", ClientSecret: secretOf("hunter22"), Scope: "a b", Audience: "kafka",
		Extensions: map[string]string{"logicalCluster": "lkc-1"}}
}

func TestTokenIsAskedForOnceAndSent(t *testing.T) {
	e := newEndpoint(t)
	m := e.config().mechanism(slog.New(slog.DiscardHandler))
	for range 3 {
		message, err := authenticate(t, m, "kafka:9093")
		if err != nil {
			t.Fatal(err)
		}
		if want := "n,,\x01auth=Bearer token-1\x01logicalCluster=lkc-1\x01\x01"; message != want {
			t.Errorf("sent %q, want %q", message, want)
		}
	}
	form := e.form.Load()
	if user, secret, _ := form.BasicAuth(); user != "relay" || secret != "hunter22" {
		t.Errorf("asked as %q with %q", user, secret)
	}
	if form.Form.Get("grant_type") != "client_credentials" || form.Form.Get("scope") != "a b" || form.Form.Get("audience") != "kafka" {
		t.Errorf("asked with %v", form.Form)
	}
}

// Past half of its life a token is renewed, and used on while no other can be had.
func TestTokenIsRenewed(t *testing.T) {
	e := newEndpoint(t)
	var log bytes.Buffer
	source := &tokenEndpoint{cfg: e.config(), secret: newSecretFile(e.config().ClientSecret, "", nil), log: slog.New(slog.NewTextHandler(&log, nil))}
	expect := func(want string) {
		t.Helper()
		if got, err := source.token(t.Context()); got != want || (err == nil) != (want != "") {
			t.Errorf("got %q, %v; want %q", got, err, want)
		}
	}
	expect("token-1")
	expect("token-1")
	if left := time.Until(source.mu.renew); left > 30*time.Minute || left < 29*time.Minute {
		t.Errorf("an hour's token is renewed after %v", left)
	}
	source.mu.renew = time.Now() // half an hour later
	e.status.Store(http.StatusServiceUnavailable)
	expect("token-1")
	if !strings.Contains(log.String(), "the last one is used until it expires") {
		t.Errorf("said: %s", log.String())
	}
	e.status.Store(http.StatusOK)
	expect("token-3")
	source.mu.renew, source.mu.last.Expiry = time.Now(), time.Now()
	e.status.Store(http.StatusServiceUnavailable)
	expect("")
	e.status.Store(http.StatusOK)
	e.lifetime.Store(0) // which tells nobody how long the token may be kept
	expect("token-5")
	expect("token-6")
}

// What the endpoint refuses is refused; what it cannot answer just now is an outage. Its answer is not
// repeated.
func TestTokenEndpointThatFails(t *testing.T) {
	e := newEndpoint(t)
	m := e.config().mechanism(slog.New(slog.DiscardHandler))
	for status, refuses := range map[int]bool{400: true, 401: true, 403: true, 404: true, 302: true, 408: false, 429: false, 500: false, 503: false} {
		e.status.Store(int64(status))
		_, err := authenticate(t, m, "kafka:9093")
		if refused(err) != refuses || err == nil {
			t.Errorf("%d: refused %v, want %v: %v", status, refused(err), refuses, err)
		}
		if strings.Contains(fmt.Sprint(err), "hunter22") || !strings.Contains(fmt.Sprint(err), fmt.Sprint(status)) {
			t.Errorf("%d: %v", status, err)
		}
	}
	e.Close()
	_, err := authenticate(t, m, "kafka:9093")
	if _, ok := errors.AsType[*tokenError](err); !ok || refused(err) {
		t.Errorf("an endpoint that is away: %v", err)
	}
}
