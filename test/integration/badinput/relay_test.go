// Package badinput holds tests that give the built binary what it cannot work with, on real servers:
// it must say so in one line that names the thing and what to type, exit as its help promises, and
// leave the table and the slot as they were.
package badinput

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"walrelay/migrations"
	"walrelay/outbox"
	"walrelay/test/harness"
)

// runLimit bounds one run of the binary, and each wait for something that it should do.
const runLimit = 60 * time.Second

// secret is the password of every URL that has one. No output may hold it.
const secret = "s3cr3t/pa:ss"

// binaryEnv carries the path of the built binary from TestMain to the tests.
const binaryEnv = "BADINPUT_WALRELAY"

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "walrelay-badinput")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	path := filepath.Join(dir, "walrelay")
	code := 1
	if out, err := exec.Command("go", "build", "-o", path, "walrelay/cmd/walrelay").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "go build: %v\n%s", err, out)
	} else {
		os.Setenv(binaryEnv, path)
		code = harness.Run(m)
	}
	os.RemoveAll(dir)
	os.Exit(code)
}

// rig is a database with what "walrelay migrate up" makes, and the environment of its relay.
type rig struct {
	db   *harness.Database
	slot string
	env  map[string]string
}

func newRig(t *testing.T, server *harness.Server, brokers string) *rig {
	t.Helper()
	db := server.Database(t)
	conn := db.Connect(t)
	_, err := migrations.Up(t.Context(), conn, migrations.Options{
		Table: outbox.Table{Schema: "public", Name: "outbox"}, Columns: columns(), Publication: "walrelay",
	})
	if err != nil {
		t.Fatal(err)
	}
	conn.Close(t.Context())
	return &rig{db: db, slot: db.Name, env: map[string]string{
		"DATABASE_URL": db.URL(), "KAFKA_BROKERS": brokers, "REPLICATION_SLOT": db.Name,
		"ROUTER_SERVICE": strings.ReplaceAll(db.Name, "_", "-"), "HTTP_ADDR": "127.0.0.1:0",
	}}
}

func columns() outbox.Columns {
	return outbox.Columns{
		ID: "id", EventID: "event_id", AggregateType: "aggregate_type", AggregateID: "aggregate_id", EventType: "event_type",
		Payload: "payload", Headers: "headers", Topic: "topic", PartitionKey: "partition_key", CreatedAt: "created_at", PublishedAt: "published_at",
	}
}

// insertRow writes one row that a relay would publish.
const insertRow = `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ('Order', '42', 'OrderCreated', '{}')`

// relay is one run of the binary.
type relay struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
	out  output
}

// output keeps what a process writes, for reading while it does.
type output struct {
	mu struct {
		sync.Mutex
		bytes.Buffer
	}
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.mu.Buffer.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.mu.Buffer.String()
}

// start starts "walrelay run" with nothing in its environment but env. The test's end kills it.
func start(t *testing.T, env map[string]string, args ...string) *relay {
	t.Helper()
	if len(args) == 0 {
		args = []string{"run"}
	}
	r := &relay{cmd: exec.Command(os.Getenv(binaryEnv), args...), done: make(chan struct{})}
	r.cmd.Env = []string{}
	for name, value := range env {
		r.cmd.Env = append(r.cmd.Env, name+"="+value)
	}
	r.cmd.Stdout, r.cmd.Stderr = &r.out, &r.out
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var waited error
	go func() {
		waited = r.cmd.Wait()
		close(r.done)
	}()
	t.Cleanup(func() {
		_ = r.cmd.Process.Kill() // it has mostly ended by itself
		<-r.done
		if exit := new(exec.ExitError); waited != nil && !errors.As(waited, &exit) {
			t.Error(waited)
		}
		t.Logf("printed:\n%s", r.out.String())
		if strings.Contains(r.out.String(), secret) || strings.Contains(r.out.String(), "s3cr3t") {
			t.Error("the password was printed")
		}
	})
	return r
}

// exit waits for the end and returns the exit code.
func (r *relay) exit(t *testing.T) int {
	t.Helper()
	select {
	case <-r.done:
		return r.cmd.ProcessState.ExitCode()
	case <-time.After(runLimit):
		t.Fatalf("still running after %v", runLimit)
		return -1
	}
}

// stop is SIGTERM, after which all must be in order.
func (r *relay) stop(t *testing.T) {
	t.Helper()
	if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := r.exit(t); code != 0 {
		t.Errorf("exit code %d after SIGTERM", code)
	}
}

// await waits until the output holds text n times.
func (r *relay) await(t *testing.T, text string, n int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d × %q in the output", n, text), func() bool {
		return strings.Count(r.out.String(), text) >= n
	})
}

// eventually asks every 20 ms.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), runLimit)
	defer cancel()
	for !is() {
		select {
		case <-ctx.Done():
			t.Fatalf("waited for %s: %v", what, ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// message is the line that an operator reads at the end: the only one that is not a log line.
func (r *relay) message(t *testing.T) string {
	t.Helper()
	var found []string
	for line := range strings.Lines(r.out.String()) {
		if !strings.HasPrefix(line, "time=") {
			found = append(found, strings.TrimSuffix(line, "\n"))
		}
	}
	if len(found) != 1 || !strings.HasPrefix(found[0], "walrelay: ") {
		t.Errorf("the message is not one line after \"walrelay: \": %q", found)
	}
	return strings.Join(found, "\n")
}

// expect checks that text holds every piece.
func expect(t *testing.T, text string, pieces ...string) {
	t.Helper()
	for _, piece := range pieces {
		if !strings.Contains(text, piece) {
			t.Errorf("no %q in: %s", piece, text)
		}
	}
}
