package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	nethttp "net/http"
	"os"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"walrelay/internal/localdev"
	"walrelay/test/harness"
)

// answerWait bounds each wait for something that takes milliseconds when all is well.
const answerWait = 30 * time.Second

// As an operator does it: migrate, run, write, look, stop by SIGTERM.
func TestMigrateRunAndStop(t *testing.T) {
	db := harness.Fresh(t, harness.NoSync(), harness.Setting("max_slot_wal_keep_size", "-1")).Database(t)
	broker, err := localdev.StartBroker(localdev.BrokerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer broker.Close()
	env := map[string]string{
		"DATABASE_URL": db.URL(), "KAFKA_BROKERS": broker.Addr(), "HTTP_ADDR": "127.0.0.1:0", "LOG_FORMAT": "json",
		"ROUTER_SERVICE": "shop", "REPLICATION_SLOT": db.Name, "KAFKA_HOME": "/opt/kafka",
	}
	if code, stdout, stderr := call(t, env, "migrate", "up", "--payload", "json"); code != exitOK || strings.Count(stdout, "applied now") != 2 {
		t.Fatalf("migrate up: %d\n%s%s", code, stdout, stderr)
	}
	if code, stdout, stderr := call(t, env, "migrate", "status"); code != exitOK || strings.Contains(stdout, "pending") ||
		!strings.Contains(stdout, "max_slot_wal_keep_size is not set") {
		t.Fatalf("migrate status: %d\n%s%s", code, stdout, stderr)
	}

	logs := newLogPipe()
	done := make(chan int, 1)
	go func() { done <- execute(t.Context(), []string{"run"}, io.Discard, logs) }()
	base := "http://" + logs.await(t, regexp.MustCompile(`"http":"([^"]+)"`))
	awaitReady(t, base)
	db.Exec(t, `insert into outbox (aggregate_type, aggregate_id, event_type, payload) values ('Order', '42', 'OrderCreated', '{"total": 1.10}')`)
	if got := consume(t, broker.Addr(), "shop.order.created"); got != `42 {"total": 1.10}` {
		t.Errorf("consumed %s", got)
	}
	if metrics := get(t, base+"/metrics"); !strings.Contains(metrics, "walrelay_rows_received_total 1") || !strings.Contains(metrics, "walrelay_kafka_") {
		t.Errorf("metrics:\n%s", metrics)
	}
	if page := get(t, base+"/"); !strings.Contains(page, "<title>walrelay</title>") {
		t.Error("no status page")
	}

	if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case code := <-done:
		if code != exitOK {
			t.Errorf("exit code %d after SIGTERM\n%s", code, logs)
		}
	case <-time.After(answerWait):
		t.Fatalf("still running after SIGTERM\n%s", logs)
	}
	if text := logs.String(); !strings.Contains(text, "KAFKA_HOME is not a setting") || !strings.Contains(text, `"msg":"stopped"`) {
		t.Errorf("log:\n%s", text)
	}
	// Stopped in order: what was published is settled and confirmed.
	if got := db.Text(t, `select count(*) from outbox where published_at is null`); got != "0" {
		t.Errorf("%s rows are not marked", got)
	}
	nethttp.DefaultClient.CloseIdleConnections()
}

func TestDemo(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a server: not with -short")
	}
	var found localdev.Config
	found.Bin, found.Cache = os.Getenv("PG_BIN"), os.Getenv("WALRELAY_CACHE")
	if _, err := localdev.Find(t.Context(), found, 0); errors.Is(err, localdev.ErrNotFound) {
		harness.Skip(t, "walrelay demo", "no PostgreSQL is installed or fetched")
	}
	code, stdout, stderr := call(t, map[string]string{"ROUTER_TOPIC": "{service}.{aggregate}"}, "demo", "--for", "2s", "--rate", "100")
	for _, want := range []string{"PostgreSQL ", "embedded Kafka broker", "status page on http://", "shop.order ", "shop.payment ", "OrderConfirmed",
		": 0 lost, 0 duplicates", "of whose events 0 were seen", "p50 ", "slot lag"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("the demo does not show %q", want)
		}
	}
	if code != exitOK || t.Failed() {
		t.Errorf("exit code %d\n%s%s", code, stdout, stderr)
	}
}

func awaitReady(t *testing.T, base string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), answerWait)
	defer cancel()
	for {
		res, err := nethttp.Get(base + "/readyz")
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(res.Body)
		if err := errors.Join(err, res.Body.Close()); err != nil {
			t.Fatal(err)
		}
		if res.StatusCode == nethttp.StatusOK {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("not ready: %s", text)
		case <-time.After(20 * time.Millisecond): // readiness is asked for, it does not call
		}
	}
}

func get(t *testing.T, url string) string {
	t.Helper()
	res, err := nethttp.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(res.Body)
	if err := errors.Join(err, res.Body.Close()); err != nil || res.StatusCode != nethttp.StatusOK {
		t.Fatalf("%s: %s, %v", url, res.Status, err)
	}
	return string(text)
}

// consume returns key and value of the first record.
func consume(t *testing.T, brokers, topic string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), answerWait)
	defer cancel()
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers), kgo.ConsumeTopics(topic), kgo.UnknownTopicRetries(-1),
		kgo.MetadataMinAge(50*time.Millisecond), kgo.MetadataMaxAge(200*time.Millisecond),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for {
		fetches := client.PollFetches(ctx)
		if ctx.Err() != nil {
			t.Fatalf("nothing on topic %s: %v", topic, fetches.Err())
		}
		for _, r := range fetches.Records() {
			return fmt.Sprintf("%s %s", r.Key, r.Value)
		}
	}
}

// logPipe keeps what a relay logs and hands over each line to whoever waits for one.
type logPipe struct {
	lines chan string
	mu    struct {
		sync.Mutex
		all bytes.Buffer
	}
}

func newLogPipe() *logPipe { return &logPipe{lines: make(chan string, 1000)} }

// Write takes whole lines, as slog gives them.
func (p *logPipe) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for s := bufio.NewScanner(bytes.NewReader(b)); s.Scan(); {
		select {
		case p.lines <- s.Text():
		default:
		}
	}
	return p.mu.all.Write(b)
}

func (p *logPipe) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.all.String()
}

// await returns the first group of the first line that matches.
func (p *logPipe) await(t *testing.T, pattern *regexp.Regexp) string {
	t.Helper()
	limit := time.After(answerWait)
	for {
		select {
		case line := <-p.lines:
			if m := pattern.FindStringSubmatch(line); m != nil {
				return m[1]
			}
		case <-limit:
			t.Fatalf("no line matches %s\n%s", pattern, p)
		}
	}
}
