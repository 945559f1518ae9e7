package badinput

import (
	"io"
	nethttp "net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"walrelay/test/harness"
	"walrelay/test/integration/fixture"
)

// A broker that is not there yet is waited for: said once, not ready, and everything is delivered when
// it comes.
func TestBrokerUnreachable(t *testing.T) {
	t.Parallel()
	f := newFixture(t, harness.Postgres(t), harness.OwnKafka(t, harness.ViaProxy()))
	f.Kafka.Proxy.Refuse()
	r := run(t, f.Environ())
	r.await(t, "kafka unreachable", 1)
	r.await(t, "msg=streaming", 1)
	f.DB.Exec(t, insertRow)

	started := regexp.MustCompile(`http=(\S+)`).FindStringSubmatch(r.Log())
	code, text := get(t, "http://"+started[1]+"/readyz")
	if code != nethttp.StatusServiceUnavailable {
		t.Errorf("/readyz: %d, want 503", code)
	}
	t.Logf("/readyz: %d %s", code, text)
	expect(t, text, "kafka at "+f.Kafka.Brokers()+" cannot be reached", "check KAFKA_BROKERS")
	time.Sleep(3 * time.Second) // for lines that must not come: nothing tells when kgo has tried often enough
	if n := strings.Count(r.Log(), "level=WARN"); n != 1 {
		t.Errorf("%d warnings while the broker is away, want 1", n)
	}
	remains(t, f, unmarked, 1, "pgoutput")

	f.Kafka.Proxy.Resume()
	f.Events(t, 1)
	f.Settled(t)
	r.await(t, "kafka reachable again", 1)
	eventually(t, "/readyz to be 200", func() bool {
		code, _ := get(t, "http://"+started[1]+"/readyz")
		return code == nethttp.StatusOK
	})
	r.Stop(t)
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	client := &nethttp.Client{Transport: &nethttp.Transport{DisableKeepAlives: true}, Timeout: fixture.Limit}
	res, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(text)
}

// A topic that is missing and may not be made is waited for, and then named with the event.
func TestTopicMissing(t *testing.T) {
	t.Parallel()
	f := newFixture(t, harness.Postgres(t), harness.Kafka(t))
	f.Setenv("KAFKA_TOPIC_CREATE", "false")
	f.Setenv("KAFKA_UNKNOWN_TOPIC_WAIT", "2s")
	topic := f.Service + ".order.created"
	r := run(t, f.Environ())
	r.await(t, "msg=streaming", 1)
	f.DB.Exec(t, insertRow)
	id := f.DB.Text(t, "SELECT event_id FROM outbox")
	r.await(t, `msg="topic cannot be written to"`, 1)
	expect(t, r.message(t, 1), "event "+id, `topic "`+topic+`"`, "UNKNOWN_TOPIC_OR_PARTITION",
		"kafka-topics.sh --bootstrap-server "+f.Kafka.Brokers()+" --create --topic "+topic, "KAFKA_TOPIC_CREATE=true")
	remains(t, f, unmarked, 1, "pgoutput")

	createTopic(t, f, topic)
	r = run(t, f.Environ())
	f.Events(t, 1)
	f.Settled(t)
	r.Stop(t)
}

// Made within the wait, the topic is written to without anybody's help.
func TestTopicMadeInTime(t *testing.T) {
	t.Parallel()
	f := newFixture(t, harness.Postgres(t), harness.Kafka(t))
	f.Setenv("KAFKA_TOPIC_CREATE", "false")
	r := run(t, f.Environ())
	r.await(t, "msg=streaming", 1)
	f.DB.Exec(t, insertRow)
	r.await(t, `msg="topic cannot be written to"`, 1)
	createTopic(t, f, f.Service+".order.created")
	f.Events(t, 1)
	f.Settled(t)
	r.await(t, `msg="topic can be written to again"`, 1)
	r.Stop(t)
}

func createTopic(t *testing.T, f *fixture.Fixture, topic string) {
	t.Helper()
	admin := kadm.NewClient(f.Kafka.Client(t))
	if _, err := admin.CreateTopic(fixture.Within(t, fixture.Limit), 1, 1, nil, topic); err != nil {
		t.Fatal(err)
	}
}

// A row that can never be published halts the relay by name. What was committed before it is on Kafka;
// marking it gives it up, and what was committed after it follows.
func TestPoisonRow(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		insert string
		want   []string
	}{
		"unroutable topic": {
			`INSERT INTO outbox (aggregate_type, aggregate_id, event_type, topic) VALUES ('Order', '42', 'OrderCreated', 'not a topic')`,
			[]string{"unroutable", `"not a topic"`},
		},
		"empty event type": {
			`INSERT INTO outbox (aggregate_type, aggregate_id, event_type) VALUES ('Order', '42', '')`,
			[]string{"unroutable", "event"},
		},
		"too large": {
			`INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ('Order', '42', 'OrderCreated', to_jsonb(repeat('x', 1100000)))`,
			[]string{"KAFKA_MAX_MESSAGE_BYTES"},
		},
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, harness.Postgres(t), harness.Kafka(t))
			r := run(t, f.Environ())
			r.await(t, "msg=streaming", 1)
			f.DB.Exec(t, insertRow)
			f.DB.Exec(t, c.insert)
			f.DB.Exec(t, insertRow)
			message := r.message(t, 1)
			id := f.DB.Text(t, "SELECT event_id FROM outbox ORDER BY id OFFSET 1 LIMIT 1")
			expect(t, message, "event "+id, "row 2")
			expect(t, message, c.want...)
			giveUp := regexp.MustCompile(`UPDATE "public"\."outbox" SET "published_at" = now\(\) WHERE "id" = 2`).FindString(message)
			if giveUp == "" {
				t.Errorf("no statement that gives the event up in: %s", message)
			}
			if got := f.DB.Text(t, "SELECT published_at IS NULL FROM outbox WHERE id = 2"); got != "t" {
				t.Error("the poison row is marked")
			}

			// Started again without a change it ends at the same event.
			expect(t, run(t, f.Environ()).message(t, 1), "event "+id)

			if giveUp == "" {
				return
			}
			f.DB.Exec(t, giveUp)
			r = run(t, f.Environ())
			f.Events(t, 2)
			f.Settled(t)
			r.await(t, `msg="event given up`, 1)
			expect(t, r.Log(), id)
			r.Stop(t)
			if n := strings.Count(r.Log(), "level=WARN"); n != 1 {
				t.Errorf("%d warnings about an event that is given up, want 1", n)
			}
		})
	}
}

// Where rows have no mark, the slot itself is moved past the event.
func TestPoisonRowWithoutMark(t *testing.T) {
	t.Parallel()
	f := newFixture(t, harness.Postgres(t), harness.Kafka(t))
	f.DB.Exec(t, "ALTER TABLE outbox DROP COLUMN published_at")
	f.Setenv("RELAY_AFTER_PUBLISH", "delete")
	r := run(t, f.Environ())
	r.await(t, "msg=streaming", 1)
	f.DB.Exec(t, insertRow)
	f.DB.Exec(t, `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, topic) VALUES ('Order', '42', 'OrderCreated', 'not a topic')`)
	f.DB.Exec(t, insertRow)
	message := r.message(t, 1)
	advance := regexp.MustCompile(`SELECT pg_replication_slot_advance\('` + f.Slot + `', pg_lsn '[0-9A-F/]+' \+ 1\)`).FindString(message)
	if advance == "" {
		t.Fatalf("no statement that gives the event up in: %s", message)
	}
	// The server notices a moment later that the relay has left the slot.
	f.DB.Eventually(fixture.Within(t, fixture.Limit), t, "f", "SELECT active FROM pg_replication_slots WHERE slot_name = '"+f.Slot+"'")
	f.DB.Exec(t, advance)
	r = run(t, f.Environ())
	f.Events(t, 2)
	f.DB.Eventually(fixture.Within(t, fixture.Limit), t, "0", "SELECT count(*) FROM outbox WHERE topic IS NULL")
	r.Stop(t)
	remains(t, f, "SELECT count(*) FROM outbox", 1, "pgoutput")
}
