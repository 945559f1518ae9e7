package http

import (
	"fmt"
	"net"
	"strconv"
)

// Config says where metrics, health and the status page are served.
type Config struct {
	Addr string `env:"HTTP_ADDR" envDefault:"127.0.0.1:8080" doc:"Where /metrics, /healthz, /readyz and the status page are served, as host:port; off turns it off."`
}

// Off is the address that serves nothing.
const Off = "off"

// Validate reports an address that cannot be listened on.
func (c Config) Validate() []error {
	if c.Addr == Off {
		return nil
	}
	_, port, err := net.SplitHostPort(c.Addr)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return []error{fmt.Errorf("HTTP_ADDR: %q is not an address: write host:port, such as 127.0.0.1:8080 or :8080", c.Addr)}
	}
	return nil
}
