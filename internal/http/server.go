// Package http serves what an operator and a scheduler look at: metrics, health and a status page.
// Nothing here changes anything.
package http

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	nethttp "net/http"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"
)

// Requests are small and so are answers; whoever takes longer than these is not worth a goroutine.
const (
	readTimeout     = 5 * time.Second
	writeTimeout    = 30 * time.Second // a scrape over a slow line
	idleTimeout     = 2 * time.Minute
	shutdownTimeout = 2 * time.Second
	maxScrapes      = 4 // at once
	maxHeaderBytes  = 16 << 10
)

//go:embed status.html
var statusPage []byte

// Options are what the endpoints show. The functions are called for each request, at the same time
// by several goroutines, and must not block.
type Options struct {
	Metrics prometheus.Gatherer
	Ready   func() error // nil while the relay does its work, else the reason
	Status  func() any   // what the status page shows; marshalled as JSON
}

// Server is one listener and its endpoints. Listen, then Run.
type Server struct {
	addr     string
	listener net.Listener
	http     *nethttp.Server
}

// New builds the endpoints and opens nothing.
func New(cfg Config, o Options) *Server {
	mux := nethttp.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(o.Metrics, promhttp.HandlerOpts{MaxRequestsInFlight: maxScrapes}))
	mux.HandleFunc("GET /healthz", func(w nethttp.ResponseWriter, _ *nethttp.Request) {
		answer(w, nethttp.StatusOK, "ok")
	})
	mux.HandleFunc("GET /readyz", func(w nethttp.ResponseWriter, _ *nethttp.Request) {
		if err := o.Ready(); err != nil {
			answer(w, nethttp.StatusServiceUnavailable, err.Error())
			return
		}
		answer(w, nethttp.StatusOK, "ok")
	})
	mux.HandleFunc("GET /status", func(w nethttp.ResponseWriter, _ *nethttp.Request) {
		body, err := json.MarshalIndent(o.Status(), "", "  ")
		if err != nil {
			answer(w, nethttp.StatusInternalServerError, err.Error())
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		_, _ = w.Write(append(body, '\n'))
	})
	mux.HandleFunc("GET /{$}", func(w nethttp.ResponseWriter, _ *nethttp.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Content-Security-Policy",
			"default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'")
		_, _ = w.Write(statusPage)
	})
	return &Server{addr: cfg.Addr, http: &nethttp.Server{
		Handler: mux, ReadTimeout: readTimeout, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes,
	}}
}

func answer(w nethttp.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	_, _ = fmt.Fprintln(w, text)
}

// Listen takes the address, so that a port that is in use is known before anything else is started.
func (s *Server) Listen() error {
	ln, err := net.Listen("tcp", s.addr)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("HTTP_ADDR: another program listens on %s already: stop it, or set another address (off for none): %w", s.addr, err)
	case err != nil:
		return fmt.Errorf("HTTP_ADDR: listen on %s: %w", s.addr, err)
	}
	s.listener = ln
	return nil
}

// Addr is where the server listens, once it does.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// Run serves until ctx ends, then gives running answers two seconds. When it returns, the port is
// free and no goroutine is left.
func (s *Server) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		if err := s.http.Serve(s.listener); !errors.Is(err, nethttp.ErrServerClosed) {
			return fmt.Errorf("serve HTTP: %w", err)
		}
		return nil
	})
	group.Go(func() error {
		<-ctx.Done()
		bound, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
		defer cancel()
		if s.http.Shutdown(bound) != nil {
			return s.http.Close() // whoever still reads is cut off
		}
		return nil
	})
	return group.Wait()
}
