package http

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	nethttp "net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start runs a server on a free port until the test ends and returns its address.
func start(t *testing.T, o Options) string {
	t.Helper()
	s := New(Config{Addr: "127.0.0.1:0"}, o)
	if err := s.Listen(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run: %v", err)
		}
		nethttp.DefaultClient.CloseIdleConnections()
	})
	return s.Addr().String()
}

func get(t *testing.T, method, url string) (int, string, nethttp.Header) {
	t.Helper()
	req, err := nethttp.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := nethttp.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(res.Body)
	if err := errors.Join(err, res.Body.Close()); err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(body), res.Header
}

func TestEndpoints(t *testing.T) {
	reg := prometheus.NewRegistry()
	counter := prometheus.NewCounter(prometheus.CounterOpts{Name: "walrelay_test_total", Help: "Of this test."})
	reg.MustRegister(counter)
	counter.Add(7)
	var broken atomic.Bool
	base := "http://" + start(t, Options{
		Metrics: reg,
		Ready: func() error {
			if broken.Load() {
				return errors.New("no message from PostgreSQL for 20s")
			}
			return nil
		},
		Status: func() any { return map[string]any{"mode": "wal"} },
	})
	for _, c := range []struct {
		path string
		code int
		want string
	}{
		{"/healthz", 200, "ok\n"},
		{"/readyz", 200, "ok\n"},
		{"/metrics", 200, "walrelay_test_total 7"},
		{"/status", 200, `"mode": "wal"`},
		{"/", 200, "<title>walrelay</title>"},
		{"/other", 404, ""},
	} {
		code, body, header := get(t, "GET", base+c.path)
		if code != c.code || !strings.Contains(body, c.want) {
			t.Errorf("GET %s: %d %q", c.path, code, body)
		}
		if c.path == "/status" && !json.Valid([]byte(body)) {
			t.Errorf("not JSON: %s", body)
		}
		if c.path == "/" && !strings.Contains(header.Get("Content-Security-Policy"), "default-src 'none'") {
			t.Error("the page may load from elsewhere")
		}
	}
	broken.Store(true)
	if code, body, _ := get(t, "GET", base+"/readyz"); code != 503 || body != "no message from PostgreSQL for 20s\n" {
		t.Errorf("not ready: %d %q", code, body)
	}
	if code, _, _ := get(t, "GET", base+"/healthz"); code != 200 {
		t.Errorf("the process is well although the stream is not: %d", code)
	}
	if code, _, _ := get(t, "POST", base+"/readyz"); code != 405 {
		t.Errorf("POST: %d", code)
	}
}

// The page must be whole without a network: nothing is loaded from elsewhere.
func TestStatusPageStandsAlone(t *testing.T) {
	for _, bad := range []string{"http://", "https://", "src=", "@import", "<link"} {
		if strings.Contains(string(statusPage), bad) {
			t.Errorf("the page holds %s", bad)
		}
	}
}

func TestAPortInUseIsSaid(t *testing.T) {
	addr := start(t, Options{Metrics: prometheus.NewRegistry()})
	err := New(Config{Addr: addr}, Options{Metrics: prometheus.NewRegistry()}).Listen()
	if err == nil || !strings.Contains(err.Error(), "HTTP_ADDR: another program listens on "+addr) {
		t.Errorf("got %v", err)
	}
}

func TestValidate(t *testing.T) {
	for addr, good := range map[string]bool{
		"127.0.0.1:8080": true, ":0": true, "[::1]:80": true, "off": true, "relay.internal:8080": true,
		"": false, "8080": false, "host:http": false, "host:99999": false, "host:": false,
	} {
		if errs := (Config{Addr: addr}).Validate(); (len(errs) == 0) != good {
			t.Errorf("%q: %v", addr, errs)
		}
	}
}
