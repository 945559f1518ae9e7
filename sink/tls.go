package sink

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"
)

// TLSConfig is what an operator can set about TLS to the brokers.
type TLSConfig struct {
	Enabled    bool   `env:"KAFKA_TLS" envDefault:"false" doc:"Speak TLS to the brokers. Their certificates are always verified."`
	CAFile     string `env:"KAFKA_TLS_CA_FILE" doc:"Authorities that may sign the brokers' certificates, as a PEM file; those of the system where empty. This file and the next two are read again for each new connection."`
	CertFile   string `env:"KAFKA_TLS_CERT_FILE" doc:"Client certificate with its chain, as a PEM file, for brokers that ask for one."`
	KeyFile    string `env:"KAFKA_TLS_KEY_FILE" doc:"Private key of the client certificate, as a PEM file that is not encrypted."`
	ServerName string `env:"KAFKA_TLS_SERVER_NAME" doc:"Name that the brokers' certificates are issued for, where it is not the host that is connected to."`
	MinVersion string `env:"KAFKA_TLS_MIN_VERSION" envDefault:"1.2" doc:"Oldest version of TLS to agree to: 1.2 or 1.3."`
}

const (
	dialTimeout      = 10 * time.Second
	handshakeTimeout = 10 * time.Second
)

// Validate reads the files, so that a wrong one is found before anything is opened.
func (c TLSConfig) Validate() []error {
	var errs []error
	for _, s := range []struct{ name, value string }{
		{"KAFKA_TLS_CA_FILE", c.CAFile}, {"KAFKA_TLS_CERT_FILE", c.CertFile},
		{"KAFKA_TLS_KEY_FILE", c.KeyFile}, {"KAFKA_TLS_SERVER_NAME", c.ServerName},
	} {
		if s.value != "" && !c.Enabled {
			errs = append(errs, fmt.Errorf("%s has no effect without KAFKA_TLS=true: set that, or take it away", s.name))
		}
	}
	switch {
	case c.CertFile != "" && c.KeyFile == "":
		errs = append(errs, errors.New("KAFKA_TLS_KEY_FILE is not set: KAFKA_TLS_CERT_FILE needs the certificate's private key"))
	case c.CertFile == "" && c.KeyFile != "":
		errs = append(errs, errors.New("KAFKA_TLS_CERT_FILE is not set: KAFKA_TLS_KEY_FILE needs the certificate of the key"))
	}
	if _, err := c.minVersion(); err != nil {
		errs = append(errs, err)
	}
	if len(errs) > 0 || !c.Enabled {
		return errs
	}
	content, err := c.read()
	if err == nil {
		_, err = c.build(content, time.Now())
	}
	if err != nil {
		errs = append(errs, err)
	}
	return errs
}

func (c TLSConfig) minVersion() (uint16, error) {
	switch c.MinVersion {
	case "1.2", "": // empty in a Config that was not read from the environment
		return tls.VersionTLS12, nil
	case "1.3":
		return tls.VersionTLS13, nil
	}
	return 0, fmt.Errorf("KAFKA_TLS_MIN_VERSION: %q is unknown: use 1.2 or 1.3", c.MinVersion)
}

// pemFiles are the contents of the files.
type pemFiles struct{ ca, cert, key []byte }

func (p pemFiles) equal(o pemFiles) bool {
	return bytes.Equal(p.ca, o.ca) && bytes.Equal(p.cert, o.cert) && bytes.Equal(p.key, o.key)
}

func (c TLSConfig) read() (p pemFiles, err error) {
	for _, f := range []struct {
		name, path string
		to         *[]byte
	}{
		{"KAFKA_TLS_CA_FILE", c.CAFile, &p.ca}, {"KAFKA_TLS_CERT_FILE", c.CertFile, &p.cert}, {"KAFKA_TLS_KEY_FILE", c.KeyFile, &p.key},
	} {
		if f.path == "" {
			continue
		}
		if *f.to, err = os.ReadFile(f.path); err != nil {
			return p, fmt.Errorf("%s: %w", f.name, err)
		}
	}
	return p, nil
}

// build makes the configuration of a connection. The name of the host is still missing in it.
func (c TLSConfig) build(p pemFiles, now time.Time) (*tls.Config, error) {
	minVersion, err := c.minVersion()
	if err != nil {
		return nil, err
	}
	cfg := &tls.Config{MinVersion: minVersion, ServerName: c.ServerName}
	if c.CAFile != "" {
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(p.ca) {
			return nil, fmt.Errorf("KAFKA_TLS_CA_FILE: %s holds no certificate in PEM form (-----BEGIN CERTIFICATE-----)", c.CAFile)
		}
	}
	if c.CertFile == "" {
		return cfg, nil
	}
	if encrypted(p.key) {
		return nil, fmt.Errorf("KAFKA_TLS_KEY_FILE: the key in %s is encrypted: decrypt it with openssl pkey -in %[1]s -out FILE", c.KeyFile)
	}
	pair, err := tls.X509KeyPair(p.cert, p.key)
	if err != nil {
		return nil, fmt.Errorf("KAFKA_TLS_CERT_FILE %s and KAFKA_TLS_KEY_FILE %s are no pair: %w", c.CertFile, c.KeyFile, err)
	}
	// The texts say no current time: what is said once is told by its text.
	if leaf := pair.Leaf; now.After(leaf.NotAfter) {
		return nil, fmt.Errorf("KAFKA_TLS_CERT_FILE: the certificate in %s was valid until %s: renew it, or set the clock", c.CertFile, leaf.NotAfter.UTC().Format(time.RFC3339))
	} else if now.Before(leaf.NotBefore) {
		return nil, fmt.Errorf("KAFKA_TLS_CERT_FILE: the certificate in %s is not valid before %s: set the clock", c.CertFile, leaf.NotBefore.UTC().Format(time.RFC3339))
	}
	cfg.Certificates = []tls.Certificate{pair}
	return cfg, nil
}

// encrypted recognises both forms of an encrypted key: PKCS #8, and what OpenSSL wrote before that.
func encrypted(key []byte) bool {
	for block, rest := pem.Decode(key); block != nil; block, rest = pem.Decode(rest) {
		if _, old := block.Headers["DEK-Info"]; old || block.Type == "ENCRYPTED PRIVATE KEY" {
			return true
		}
	}
	return false
}

// certificates are the files as they are in use. They are read for each new connection and compared by
// content: times of change are too coarse to tell a file that was written twice within a tick, and a
// connection costs more than three small reads.
//
// While new files are written, certificate and key may not fit together for a moment, and what was
// written may be wrong. So whatever cannot be used leaves the old ones in use, and is said once.
type certificates struct {
	cfg TLSConfig
	log *slog.Logger
	now func() time.Time

	mu struct {
		sync.Mutex
		files  pemFiles // what config was made from
		config *tls.Config
		said   string // why newer files are not used
	}
}

func newCertificates(cfg TLSConfig, log *slog.Logger) (*certificates, error) {
	files, err := cfg.read()
	if err != nil {
		return nil, err
	}
	config, err := cfg.build(files, time.Now())
	if err != nil {
		return nil, err
	}
	c := &certificates{cfg: cfg, log: log, now: time.Now}
	c.mu.files, c.mu.config = files, config
	return c, nil
}

func (c *certificates) current() *tls.Config {
	c.mu.Lock()
	defer c.mu.Unlock()
	files, err := c.cfg.read()
	if err == nil && files.equal(c.mu.files) {
		c.mu.said = ""
		return c.mu.config
	}
	var config *tls.Config
	if err == nil {
		config, err = c.cfg.build(files, c.now())
	}
	if err != nil {
		if text := err.Error(); text != c.mu.said {
			c.mu.said = text
			c.log.Warn("new certificates cannot be used: the old ones stay in use", "error", err)
		}
		return c.mu.config
	}
	c.mu.files, c.mu.config, c.mu.said = files, config, ""
	attrs := []any{"ca_file", c.cfg.CAFile}
	if len(config.Certificates) > 0 {
		attrs = append(attrs, "cert_file", c.cfg.CertFile, "valid_until", config.Certificates[0].Leaf.NotAfter)
	}
	c.log.Info("new certificates are in use for new connections to kafka", attrs...)
	return config
}

// dial is kgo's dialer.
func (c *certificates) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	config := c.current().Clone()
	if config.ServerName == "" {
		if config.ServerName, _, err = net.SplitHostPort(addr); err != nil {
			return nil, errors.Join(fmt.Errorf("read the broker's address: %w", err), conn.Close())
		}
	}
	secured := tls.Client(conn, config)
	attempt, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	if err := secured.HandshakeContext(attempt); err != nil {
		conn.Close() // nothing was sent that a peer could wait for
		return nil, fmt.Errorf("tls handshake: %w", err)
	}
	return secured, nil
}
