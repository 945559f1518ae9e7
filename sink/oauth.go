package sink

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"
)

// OAuthConfig is what an operator can set about OAUTHBEARER: a token, or where to get one.
type OAuthConfig struct {
	Token        Secret            `env:"KAFKA_SASL_OAUTH_TOKEN" secret:"true" doc:"Token of OAUTHBEARER, where somebody else renews it: its file is read again for each login."`
	TokenURL     string            `env:"KAFKA_SASL_OAUTH_TOKEN_URL" doc:"Token endpoint of OAUTHBEARER, asked with the client's credentials; tokens are renewed before they expire."`
	ClientID     string            `env:"KAFKA_SASL_OAUTH_CLIENT_ID" doc:"Client id for the token endpoint."`
	ClientSecret Secret            `env:"KAFKA_SASL_OAUTH_CLIENT_SECRET" secret:"true" doc:"Client secret for the token endpoint."`
	Scope        string            `env:"KAFKA_SASL_OAUTH_SCOPE" doc:"Scopes to ask the token endpoint for, with spaces between them."`
	Audience     string            `env:"KAFKA_SASL_OAUTH_AUDIENCE" doc:"Audience to ask the token endpoint for, where it wants one."`
	Extensions   map[string]string `env:"KAFKA_SASL_OAUTH_EXTENSIONS" envKeyValSeparator:"=" doc:"SASL extensions for the broker, such as logicalCluster=lkc-1,identityPoolId=pool-2."`
}

// extensionName is RFC 7628's key; auth is the token's own.
var extensionName = regexp.MustCompile(`^[A-Za-z]+$`)

// Validate reports what no login can be made of.
func (c OAuthConfig) Validate() []error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	switch {
	case c.Token.set() && c.TokenURL != "":
		bad("KAFKA_SASL_OAUTH_TOKEN and KAFKA_SASL_OAUTH_TOKEN_URL are both set: keep one")
	case c.Token.set():
		if strings.ContainsAny(c.Token.value, " \t\r\n\x01") {
			bad("KAFKA_SASL_OAUTH_TOKEN has a space or a line break in it: it is one token, without Bearer before it")
		}
	case c.TokenURL == "":
		bad("KAFKA_SASL_OAUTH_TOKEN_URL is not set: KAFKA_SASL_MECHANISM=OAUTHBEARER needs it with client id and secret, or KAFKA_SASL_OAUTH_TOKEN")
	default:
		if u, err := url.Parse(c.TokenURL); err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || u.User != nil {
			bad("KAFKA_SASL_OAUTH_TOKEN_URL is not a URL of a token endpoint: write https://host/path, without user or password")
		}
		if c.ClientID == "" {
			bad("KAFKA_SASL_OAUTH_CLIENT_ID is not set: the token endpoint wants it")
		}
		if !c.ClientSecret.set() {
			bad("KAFKA_SASL_OAUTH_CLIENT_SECRET is not set: the token endpoint wants it")
		}
	}
	for name, value := range c.Extensions {
		if !extensionName.MatchString(name) || name == "auth" || strings.Contains(value, "\x01") {
			bad("KAFKA_SASL_OAUTH_EXTENSIONS: %q is not an extension: write name=value,name=value with names of letters", name)
		}
	}
	return errs
}

func (c OAuthConfig) warnings() []string {
	u, err := url.Parse(c.TokenURL)
	if err != nil || u.Scheme != "http" {
		return nil
	}
	if ip := net.ParseIP(u.Hostname()); u.Hostname() == "localhost" || ip != nil && ip.IsLoopback() {
		return nil
	}
	return []string{"KAFKA_SASL_OAUTH_TOKEN_URL is not https: the client secret goes over the network in clear text"}
}

func (c OAuthConfig) mechanism(log *slog.Logger) sasl.Mechanism {
	token := newSecretFile(c.Token, "KAFKA_SASL_OAUTH_TOKEN", log)
	endpoint := &tokenEndpoint{cfg: c, secret: newSecretFile(c.ClientSecret, "KAFKA_SASL_OAUTH_CLIENT_SECRET", log), log: log}
	return oauth.Oauth(func(ctx context.Context) (oauth.Auth, error) {
		auth := oauth.Auth{Extensions: c.Extensions}
		if c.TokenURL == "" {
			auth.Token = token.read()
			return auth, nil
		}
		var err error
		auth.Token, err = endpoint.token(ctx)
		return auth, err
	})
}

// tokenEndpoint gets tokens and keeps the last one. Every connection of the client asks it, and one at
// a time goes to the endpoint.
type tokenEndpoint struct {
	cfg    OAuthConfig
	secret *secretFile
	log    *slog.Logger

	mu struct {
		sync.Mutex
		client *clientcredentials.Config // knows whether the endpoint takes the secret as a header or in the form
		last   *oauth2.Token
		renew  time.Time // last is not given out after that, if another can be had
	}
}

const tokenTimeout = 10 * time.Second

// token is renewed when half of its life is over. A broker wants a login renewed when its token is
// about to expire, and not twice within a second (ILLEGAL_SASL_STATE): what is given out must last.
func (e *tokenEndpoint) token(ctx context.Context) (string, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	if e.mu.last != nil && now.Before(e.mu.renew) {
		return e.mu.last.AccessToken, nil
	}
	token, err := e.fetchLocked(ctx)
	if err != nil {
		if e.mu.last != nil && now.Before(e.mu.last.Expiry) {
			e.log.Warn("a new token cannot be had: the last one is used until it expires", "expires", e.mu.last.Expiry, "error", err)
			return e.mu.last.AccessToken, nil
		}
		return "", err
	}
	e.mu.last, e.mu.renew = nil, time.Time{}
	if !token.Expiry.IsZero() { // else nobody knows how long it may be kept
		e.mu.last, e.mu.renew = token, now.Add(token.Expiry.Sub(now)/2)
	}
	return token.AccessToken, nil
}

func (e *tokenEndpoint) fetchLocked(ctx context.Context) (*oauth2.Token, error) {
	if secret := e.secret.read(); e.mu.client == nil || e.mu.client.ClientSecret != secret {
		e.mu.client = &clientcredentials.Config{
			ClientID: e.cfg.ClientID, ClientSecret: secret, TokenURL: e.cfg.TokenURL, Scopes: strings.Fields(e.cfg.Scope),
		}
		if e.cfg.Audience != "" {
			e.mu.client.EndpointParams = url.Values{"audience": {e.cfg.Audience}}
		}
	}
	token, err := e.mu.client.Token(context.WithValue(ctx, oauth2.HTTPClient, &http.Client{
		Timeout: tokenTimeout,
		// Logins are rare: a connection that waits for the next would only be in the way.
		Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true},
		// The request holds the secret: it goes where the operator said and nowhere else.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}))
	if err == nil {
		return token, nil
	}
	answer, answered := errors.AsType[*oauth2.RetrieveError](err)
	if !answered || answer.Response == nil {
		return nil, &tokenError{err: fmt.Errorf("ask %s for a token: %w", e.cfg.TokenURL, err),
			remedy: "check KAFKA_SASL_OAUTH_TOKEN_URL and that it can be reached"}
	}
	// The answer's own text is not repeated, beyond the code of RFC 6749: it is anybody's, and may
	// hold what was asked with.
	status := answer.Response.StatusCode
	return nil, &tokenError{
		err:     fmt.Errorf("ask %s for a token: %s %s", e.cfg.TokenURL, answer.Response.Status, errorCode(answer.ErrorCode)),
		refused: status >= 300 && status < 500 && status != http.StatusRequestTimeout && status != http.StatusTooManyRequests,
		remedy:  "check KAFKA_SASL_OAUTH_TOKEN_URL, KAFKA_SASL_OAUTH_CLIENT_ID, KAFKA_SASL_OAUTH_CLIENT_SECRET and KAFKA_SASL_OAUTH_SCOPE",
	}
}

// errorCodes are those of RFC 6749, section 5.2.
var errorCodes = []string{"invalid_request", "invalid_client", "invalid_grant", "unauthorized_client", "unsupported_grant_type", "invalid_scope"}

func errorCode(code string) string {
	for _, known := range errorCodes {
		if code == known {
			return "(" + code + ")"
		}
	}
	return "(no error code that OAuth knows)"
}

// tokenError is a login that could not even begin: credentials could not be had.
type tokenError struct {
	err     error
	refused bool // whoever was asked has said no, and will say it again
	remedy  string
}

func (e *tokenError) Error() string { return e.err.Error() }
func (e *tokenError) Unwrap() error { return e.err }
