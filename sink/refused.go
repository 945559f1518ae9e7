package sink

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// refused reports whether a connection failed because one side does not trust the other: certificates,
// logins and the credentials for them. Records that fail for it are class Session, and stay; whether
// the relay goes on trying is reach's to decide.
func refused(err error) bool {
	if token, ok := errors.AsType[*tokenError](err); ok {
		return token.refused
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return true
	}
	if kafka, ok := errors.AsType[*kerr.Error](err); ok {
		return loginCode(kafka)
	}
	return alert(err)
}

// loginCode is an answer to the login itself, and to nothing else.
func loginCode(err *kerr.Error) bool {
	switch err {
	case kerr.SaslAuthenticationFailed, kerr.UnsupportedSaslMechanism, kerr.IllegalSaslState,
		kerr.DelegationTokenAuthDisabled, kerr.DelegationTokenNotFound, kerr.DelegationTokenExpired,
		kerr.DelegationTokenAuthorizationFailed:
		return true
	}
	return false
}

// alert is the other side's refusal inside of TLS. crypto/tls has no exported type for it.
func alert(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "remote error"
}

// remedy says what to check after a refusal, and "" where err is none.
func (c *Config) remedy(err error) string {
	if token, ok := errors.AsType[*tokenError](err); ok {
		return token.remedy
	}
	if kafka, ok := errors.AsType[*kerr.Error](err); ok && loginCode(kafka) {
		return c.loginRemedy(kafka)
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return c.certificateRemedy(err)
	}
	switch {
	case alert(err) && c.TLS.CertFile == "":
		return "the broker ended TLS: when it asks for a client certificate, set KAFKA_TLS_CERT_FILE and KAFKA_TLS_KEY_FILE; else check KAFKA_TLS_MIN_VERSION"
	case alert(err):
		return "the broker ended TLS: check that it trusts the certificate of KAFKA_TLS_CERT_FILE"
	}
	return ""
}

// mismatch guesses what is wrong when something answers at the broker's address, or closes the
// connection, and no broker has accepted this relay yet: mostly one side speaks TLS and the other does
// not. From brokers that have accepted it before, the same errors are outages.
func (c *Config) mismatch(err error) string {
	const otherPort = "or name another port in KAFKA_BROKERS"
	_, notTLS := errors.AsType[tls.RecordHeaderError](err)
	_, eof := errors.AsType[*kgo.ErrFirstReadEOF](err)
	_, network := errors.AsType[net.Error](err)
	switch {
	case notTLS:
		return "what answers there does not speak TLS: set KAFKA_TLS=false, " + otherPort
	case eof && c.TLS.Enabled && c.TLS.CertFile != "":
		return "the listener may speak no TLS (set KAFKA_TLS=false, " + otherPort + "), or not trust the certificate of KAFKA_TLS_CERT_FILE"
	case eof && c.TLS.Enabled && c.SASL.Mechanism != "":
		return "the listener may speak no TLS (set KAFKA_TLS=false, " + otherPort + "), or want a client certificate (KAFKA_TLS_CERT_FILE)"
	case eof && c.TLS.Enabled:
		return "the listener may speak no TLS (set KAFKA_TLS=false, " + otherPort + "), or want a login (KAFKA_SASL_MECHANISM) or a client certificate (KAFKA_TLS_CERT_FILE)"
	case eof && c.SASL.Mechanism == "":
		return "the listener may speak TLS (set KAFKA_TLS=true) or want a login (set KAFKA_SASL_MECHANISM)"
	case eof, !network && !c.TLS.Enabled:
		// A listener with TLS answers a client without it with an alert, which is no answer of Kafka's.
		return "the listener probably speaks TLS: set KAFKA_TLS=true, " + otherPort
	}
	return ""
}

func (c *Config) loginRemedy(err *kerr.Error) string {
	switch err {
	case kerr.SaslAuthenticationFailed:
		switch c.SASL.Mechanism {
		case mechanismOAuth:
			return "check that the brokers accept tokens of this issuer, audience and scope, and KAFKA_SASL_OAUTH_EXTENSIONS"
		case mechanismMSK:
			return "check that the AWS identity may kafka-cluster:Connect to this cluster, AWS_REGION, and the clock"
		}
		return "check KAFKA_SASL_USERNAME and KAFKA_SASL_PASSWORD, and that the user exists for " + c.SASL.Mechanism
	case kerr.UnsupportedSaslMechanism:
		return "this listener does not offer KAFKA_SASL_MECHANISM=" + c.SASL.Mechanism + ": use one of its sasl.enabled.mechanisms"
	case kerr.IllegalSaslState:
		return "this listener asks for no login: take KAFKA_SASL_MECHANISM away, or name the SASL port in KAFKA_BROKERS"
	}
	return "check the credentials and the permissions of its user"
}

func (c *Config) certificateRemedy(err error) string {
	if _, ok := errors.AsType[x509.HostnameError](err); ok {
		return "connect by a name of the broker's certificate, or give that name as KAFKA_TLS_SERVER_NAME"
	}
	if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok && invalid.Reason == x509.Expired {
		return "renew the broker's certificate, or set the clock"
	}
	if c.TLS.CAFile == "" {
		return "give the authority that signed the brokers' certificates as KAFKA_TLS_CA_FILE"
	}
	return "check that KAFKA_TLS_CA_FILE holds the authority that signed the brokers' certificates"
}
