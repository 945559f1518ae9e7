package sink

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// SASLConfig is what an operator can set about logging in.
type SASLConfig struct {
	Mechanism string `env:"KAFKA_SASL_MECHANISM" doc:"How to log in: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER or AWS_MSK_IAM (with the AWS SDK's own variables and files); empty for no login."`
	Username  string `env:"KAFKA_SASL_USERNAME" doc:"User of PLAIN and SCRAM."`
	Password  Secret `env:"KAFKA_SASL_PASSWORD" secret:"true" doc:"Password of PLAIN and SCRAM."`
	OAuth     OAuthConfig
}

// The mechanisms, as Kafka names them.
const (
	mechanismPlain       = "PLAIN"
	mechanismScramSHA256 = "SCRAM-SHA-256"
	mechanismScramSHA512 = "SCRAM-SHA-512"
	mechanismOAuth       = "OAUTHBEARER"
	mechanismMSK         = "AWS_MSK_IAM"
)

// Validate reports what is missing for the mechanism, and what has no effect with it.
func (c SASLConfig) Validate() []error {
	password := c.Mechanism == mechanismPlain || c.Mechanism == mechanismScramSHA256 || c.Mechanism == mechanismScramSHA512
	oauth := c.Mechanism == mechanismOAuth
	if !password && !oauth && c.Mechanism != "" && c.Mechanism != mechanismMSK {
		return []error{fmt.Errorf("KAFKA_SASL_MECHANISM: %q is unknown: use PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER or AWS_MSK_IAM", c.Mechanism)}
	}
	var errs []error
	for _, s := range []struct {
		name             string
		set, used, needs bool
	}{
		{"KAFKA_SASL_USERNAME", c.Username != "", password, true},
		{"KAFKA_SASL_PASSWORD", c.Password.set(), password, true},
		{"KAFKA_SASL_OAUTH_TOKEN", c.OAuth.Token.set(), oauth, false},
		{"KAFKA_SASL_OAUTH_TOKEN_URL", c.OAuth.TokenURL != "", oauth, false},
		{"KAFKA_SASL_OAUTH_CLIENT_ID", c.OAuth.ClientID != "", oauth, false},
		{"KAFKA_SASL_OAUTH_CLIENT_SECRET", c.OAuth.ClientSecret.set(), oauth, false},
		{"KAFKA_SASL_OAUTH_SCOPE", c.OAuth.Scope != "", oauth, false},
		{"KAFKA_SASL_OAUTH_AUDIENCE", c.OAuth.Audience != "", oauth, false},
		{"KAFKA_SASL_OAUTH_EXTENSIONS", len(c.OAuth.Extensions) > 0, oauth, false},
	} {
		switch {
		case s.set && c.Mechanism == "":
			errs = append(errs, fmt.Errorf("%s has no effect without KAFKA_SASL_MECHANISM: set that, or take it away", s.name))
		case s.set && !s.used:
			errs = append(errs, fmt.Errorf("%s has no effect with KAFKA_SASL_MECHANISM=%s: take it away", s.name, c.Mechanism))
		case s.used && s.needs && !s.set:
			errs = append(errs, fmt.Errorf("%s is not set: KAFKA_SASL_MECHANISM=%s needs it", s.name, c.Mechanism))
		}
	}
	if oauth {
		errs = append(errs, c.OAuth.Validate()...)
	}
	return errs
}

// warnings are about what works and gives away more than its owner may know.
func (c SASLConfig) warnings(tls bool) []string {
	var all []string
	switch {
	case tls:
	case c.Mechanism == mechanismPlain:
		all = append(all, "KAFKA_SASL_MECHANISM=PLAIN without KAFKA_TLS=true sends the password over the network in clear text")
	case c.Mechanism == mechanismOAuth:
		all = append(all, "KAFKA_SASL_MECHANISM=OAUTHBEARER without KAFKA_TLS=true sends the token over the network in clear text")
	case c.Mechanism != "":
		all = append(all, "KAFKA_SASL_MECHANISM="+c.Mechanism+" without KAFKA_TLS=true: the login is readable on the network, and so is every event")
	}
	if c.Mechanism == mechanismOAuth {
		all = append(all, c.OAuth.warnings()...)
	}
	return all
}

// mechanism is nil where nobody logs in. kgo asks it anew for each connection, and again whenever a
// broker wants to see a login renewed.
func (c SASLConfig) mechanism(log *slog.Logger) (sasl.Mechanism, error) {
	password := newSecretFile(c.Password, "KAFKA_SASL_PASSWORD", log)
	auth := func(context.Context) (scram.Auth, error) {
		return scram.Auth{User: c.Username, Pass: password.read()}, nil
	}
	switch c.Mechanism {
	case "":
		return nil, nil
	case mechanismPlain:
		return plain.Plain(func(context.Context) (plain.Auth, error) {
			return plain.Auth{User: c.Username, Pass: password.read()}, nil
		}), nil
	case mechanismScramSHA256:
		return scram.Sha256(auth), nil
	case mechanismScramSHA512:
		return scram.Sha512(auth), nil
	case mechanismOAuth:
		return c.OAuth.mechanism(log), nil
	case mechanismMSK:
		return mskMechanism(), nil
	}
	return nil, errors.New("unknown SASL mechanism " + c.Mechanism) // Validate has refused it
}
