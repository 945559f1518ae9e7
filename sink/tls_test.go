package sink

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"walrelay/test/harness"
)

// A client certificate that is out of its time is refused before anything is opened.
func TestExpiredClientCertificate(t *testing.T) {
	authority := harness.NewAuthority(t, "tests")
	c := authority.Issue(t, "relay", time.Now().Add(-time.Minute))
	cfg := TLSConfig{Enabled: true, CertFile: c.CertFile, KeyFile: c.KeyFile}
	errs := cfg.Validate()
	if len(errs) != 1 || !strings.Contains(errs[0].Error(), "KAFKA_TLS_CERT_FILE: the certificate in "+c.CertFile+" was valid until ") {
		t.Errorf("got %v", errs)
	}
}

// New files are used from the next connection on; those that cannot be used leave the old ones in use,
// and are said once for each thing that is wrong.
func TestCertificatesAreReadAgain(t *testing.T) {
	authority, dir := harness.NewAuthority(t, "tests"), t.TempDir()
	cfg := TLSConfig{Enabled: true, CAFile: filepath.Join(dir, "ca"), CertFile: filepath.Join(dir, "cert"), KeyFile: filepath.Join(dir, "key")}
	put := func(from, to string) {
		t.Helper()
		content, err := os.ReadFile(from)
		if err == nil {
			err = os.WriteFile(to, content, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	first, second := authority.Issue(t, "first", time.Now().Add(time.Hour)), authority.Issue(t, "second", time.Now().Add(time.Hour))
	expired := authority.Issue(t, "expired", time.Now().Add(-time.Minute))
	put(authority.File, cfg.CAFile)
	put(first.CertFile, cfg.CertFile)
	put(first.KeyFile, cfg.KeyFile)
	var log bytes.Buffer
	c, err := newCertificates(cfg, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	clock := time.Now()
	c.now = func() time.Time { clock = clock.Add(time.Second); return clock } // each connection in a second of its own
	expect := func(name string, warnings, changes int) {
		t.Helper()
		for range 2 { // connections
			if got := c.current().Certificates[0].Leaf.Subject.CommonName; got != name {
				t.Errorf("certificate of %s, want %s", got, name)
			}
		}
		if w, n := strings.Count(log.String(), "level=WARN"), strings.Count(log.String(), "level=INFO"); w != warnings || n != changes {
			t.Errorf("%d warnings and %d changes, want %d and %d:\n%s", w, n, warnings, changes, log.String())
		}
	}
	expect("first", 0, 0)
	put(expired.CertFile, cfg.CertFile)
	expect("first", 1, 0) // no pair
	put(expired.KeyFile, cfg.KeyFile)
	expect("first", 2, 0) // a pair, and out of its time
	if err := os.Remove(cfg.CertFile); err != nil {
		t.Fatal(err)
	}
	expect("first", 3, 0)
	put(second.CertFile, cfg.CertFile)
	put(second.KeyFile, cfg.KeyFile)
	expect("second", 3, 1)
	put(second.KeyFile, cfg.CAFile)
	expect("second", 4, 1) // no authority in it
	put(authority.File, cfg.CAFile)
	expect("second", 4, 1)
}
