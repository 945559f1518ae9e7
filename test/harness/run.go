// Package harness gives tests real servers: PostgreSQL of every major that this machine has or can
// fetch, and Apache Kafka. Servers are shared as far as tests allow it, databases, slots and topics
// are fresh for each test.
//
// A package that uses it has
//
//	func TestMain(m *testing.M) { os.Exit(harness.Run(m)) }
//
// Alone, such a test uses what is installed or was fetched before and never touches the network.
// Under harness/cmd/up, which is how make test runs it, servers are started once for all packages
// and what is missing is fetched. With -short, tests that need a server are skipped.
package harness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"walrelay/internal/localdev"
)

// The environment by which harness/cmd/up hands its servers to the tests.
const (
	EnvPostgres = "HARNESS_POSTGRES" // see Endpoints
	EnvBrokers  = "KAFKA_BROKERS"    // host:port list of a running Kafka; anybody may set it
	EnvKafka    = "HARNESS_KAFKA"    // what answers there, for people: "Apache Kafka 4.4.0"
	EnvFetch    = "HARNESS_FETCH"    // not empty: binaries and jars may be fetched
	EnvNotRun   = "HARNESS_NOT_RUN"  // file that Skip and Note append to
	EnvLogs     = "HARNESS_LOGS"     // folder for the logs of servers of failed tests
	EnvVersions = "PG_VERSIONS"      // majors for EachVersion: "15,17" or "all"
)

// shared holds the servers of this test binary. A test asks for a server without having been handed
// one, and one server must do for all of them: that is the one reason for state of the package.
var shared struct {
	sync.Mutex
	running  bool                        // Run is on the stack
	postgres map[string]*localdev.Server // by major and settings
	cluster  *Cluster
}

// Run runs the tests, stops the servers that they shared, and fails when a goroutine is left over.
func Run(m *testing.M, opts ...goleak.Option) int {
	shared.Lock()
	shared.running = true
	shared.postgres = map[string]*localdev.Server{}
	shared.Unlock()

	code := m.Run()
	if err := stopShared(code != 0); err != nil {
		fmt.Fprintln(os.Stderr, "harness: stop the servers:", err)
		code = max(code, 1)
	}
	if code == 0 {
		if err := goleak.Find(opts...); err != nil {
			fmt.Fprintln(os.Stderr, "goroutines are left over:", err)
			code = 1
		}
	}
	return code
}

func stopShared(failed bool) error {
	shared.Lock()
	defer shared.Unlock()
	shared.running = false
	var errs []error
	for _, s := range shared.postgres {
		if failed {
			fmt.Fprintln(os.Stderr, "harness: log kept:", KeepLog(s.LogPath(), fmt.Sprintf("postgres-%d", s.Binaries().Major)))
		}
		errs = append(errs, s.Close())
	}
	if c := shared.cluster; c != nil {
		if failed && c.LogPath() != "" {
			fmt.Fprintln(os.Stderr, "harness: log kept:", KeepLog(c.LogPath(), "kafka"))
		}
		errs = append(errs, c.broker.Close())
	}
	return errors.Join(errs...)
}

// localConfig says where server binaries come from; the variables are those of localdev.Config.
func localConfig() localdev.Config {
	return localdev.Config{Bin: os.Getenv("PG_BIN"), Repository: os.Getenv("PG_REPOSITORY"), Cache: os.Getenv("WALRELAY_CACHE")}
}

func mayFetch() bool { return os.Getenv(EnvFetch) != "" }

// setUp is where every test that needs a server comes through.
func setUp(t testing.TB) context.Context {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a server: not with -short")
	}
	if !shared.running {
		t.Fatal("this package's TestMain must be: func TestMain(m *testing.M) { os.Exit(harness.Run(m)) }")
	}
	return t.Context()
}
