package harness

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
)

// Endpoint is a running PostgreSQL as EnvPostgres carries it from one process to another.
type Endpoint struct {
	Major       int
	TCP, Socket string // URLs of database postgres
}

// Endpoints is EnvPostgres's text: "major TCP-URL socket-URL", one server per line.
type Endpoints []Endpoint

func (e Endpoints) String() string {
	var b strings.Builder
	for _, one := range e {
		fmt.Fprintf(&b, "%d %s %s\n", one.Major, one.TCP, one.Socket)
	}
	return b.String()
}

func parseEndpoints(text string) (Endpoints, error) {
	var all Endpoints
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) != 3 {
			return nil, fmt.Errorf("%s: %q is not a major and two URLs", EnvPostgres, line)
		}
		major, err := strconv.Atoi(fields[0])
		if err != nil {
			return nil, fmt.Errorf("%s: read the major: %w", EnvPostgres, err)
		}
		all = append(all, Endpoint{major, fields[1], fields[2]})
	}
	return all, nil
}

func endpoints() Endpoints {
	all, err := parseEndpoints(os.Getenv(EnvPostgres))
	if err != nil {
		panic("harness: " + err.Error()) // only harness/cmd/up sets it
	}
	return all
}

// handedOver is the server of that major (0: the first) that another process started, or nil.
func handedOver(t testing.TB, major int) *Server {
	t.Helper()
	if asked, err := askedMajors(); err == nil && major == 0 && len(asked) > 0 {
		major = asked[0]
	}
	for _, e := range endpoints() {
		if major == 0 || e.Major == major {
			return &Server{Major: e.Major, tcp: e.TCP, socket: e.Socket}
		}
	}
	return nil
}
