package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"walrelay/internal/config"
	relayhttp "walrelay/internal/http"
)

// healthTimeout is below the time-out that the Dockerfile gives its health check.
const healthTimeout = 2 * time.Second

func healthcheckCommand() *cobra.Command {
	var ready bool
	cmd := &cobra.Command{
		Use:   "healthcheck",
		Short: "Ask a running relay at HTTP_ADDR whether it is well (for containers without a shell)",
		Long: `Asks the relay that listens on HTTP_ADDR: by default whether the process is well (/healthz), with --ready
whether the stream from PostgreSQL is alive (/readyz). Exit code 0 means yes, 1 no.

A container is better restarted for the first than for the second: a relay whose database is away
gets over it by itself.`,
		Args: known,
		RunE: func(cmd *cobra.Command, _ []string) error {
			// Of the environment only HTTP_ADDR matters here, and a check must not fail for the rest.
			cfg, _, err := config.Load(only(os.Environ(), "HTTP_ADDR="), "DATABASE_URL", "KAFKA_BROKERS")
			if err != nil {
				return err
			}
			path := "/healthz"
			if ready {
				path = "/readyz"
			}
			text, err := ask(cmd.Context(), cfg.HTTP, path)
			if err != nil {
				return err
			}
			_, err = io.WriteString(cmd.OutOrStdout(), text)
			return err
		},
	}
	cmd.Flags().BoolVar(&ready, "ready", false, "ask for the stream and not only for the process")
	return cmd
}

func only(environ []string, prefix string) []string {
	var kept []string
	for _, entry := range environ {
		if strings.HasPrefix(entry, prefix) {
			kept = append(kept, entry)
		}
	}
	return kept
}

func ask(ctx context.Context, cfg relayhttp.Config, path string) (string, error) {
	if cfg.Addr == relayhttp.Off {
		return "", &usageError{errors.New("HTTP_ADDR is off: there is nobody to ask")}
	}
	host, port, err := net.SplitHostPort(cfg.Addr)
	if err != nil {
		return "", err
	}
	// An address to listen on everywhere is asked here.
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+net.JoinHostPort(host, port)+path, nil)
	if err != nil {
		return "", err
	}
	res, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req) // no proxy
	if err != nil {
		return "", fmt.Errorf("no relay answers on %s: %w", cfg.Addr, err)
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, 4<<10))
	if err := errors.Join(err, res.Body.Close()); err != nil {
		return "", err
	}
	if res.StatusCode != http.StatusOK {
		return "", fmt.Errorf("not well: %s", strings.TrimSpace(string(body)))
	}
	return string(body), nil
}
