package harness

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"walrelay/internal/localdev"
)

func TestMain(m *testing.M) { os.Exit(Run(m)) }

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func TestNameFitsEverywhere(t *testing.T) {
	t.Run("with/Slashes, capitals and a name that is longer than any slot may be", func(t *testing.T) {
		a, b := Name(t), Name(t)
		if a == b {
			t.Error("not unique")
		}
		if len(a) > 48 || clean(a, "_") != a {
			t.Errorf("%q is no name for a slot", a)
		}
	})
}

func TestEndpointsSurviveTheEnvironment(t *testing.T) {
	want := Endpoints{{15, "postgres://a", "postgres://b"}, {18, "postgres://c", "postgres://d"}}
	got, err := parseEndpoints(want.String())
	if err != nil || len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
		t.Errorf("got %v, %v", got, err)
	}
	if _, err := parseEndpoints("15 alone"); err == nil {
		t.Error("took half a line")
	}
}

func TestAskedMajors(t *testing.T) {
	for text, want := range map[string]int{"": 0, "15": 1, " 15, 17": 2, "all": len(localdev.Releases())} {
		t.Setenv(EnvVersions, text)
		if got, err := askedMajors(); err != nil || len(got) != want {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	t.Setenv(EnvVersions, "fifteen")
	if _, err := askedMajors(); err == nil {
		t.Error("took a word for a major")
	}
}

func TestSkipIsListed(t *testing.T) {
	list := filepath.Join(t.TempDir(), "list")
	t.Setenv(EnvNotRun, list)
	t.Run("skipped", func(t *testing.T) { Skip(t, "something", "no\nreason") })
	got, err := os.ReadFile(list)
	if err != nil || string(got) != "something: no reason\n" {
		t.Errorf("%q, %v", got, err)
	}
}

// Whatever a test leaves in its database, the next test has the server's slots and its peace.
func TestDatabaseIsGoneAfterwards(t *testing.T) {
	EachVersion(t, func(t *testing.T, s *Server) {
		var db *Database
		t.Run("uses it", func(t *testing.T) {
			db = s.Database(t)
			conn := db.Connect(t)
			slot := Name(t)
			if _, err := conn.Exec(t.Context(), "SELECT pg_create_logical_replication_slot($1, 'pgoutput')", slot); err != nil {
				t.Fatal(err)
			}
			db.Exec(t, "CREATE TABLE x (n int)")
			db.Exec(t, "BEGIN; INSERT INTO x VALUES (1); PREPARE TRANSACTION '"+slot+"'")
			if got := db.Text(t, "SELECT current_setting('server_version_num')::int / 10000"); got != strings.TrimPrefix(t.Name()[strings.LastIndex(t.Name(), "postgres-"):], "postgres-")[:2] {
				t.Errorf("major %s in %s", got, t.Name())
			}
			db.Eventually(within(t, 5*time.Second), t, "1", "SELECT count(*) FROM pg_prepared_xacts WHERE database = current_database()")
		})
		left := "SELECT (SELECT count(*) FROM pg_database WHERE datname = '" + db.Name + "') + " +
			"(SELECT count(*) FROM pg_replication_slots WHERE database = '" + db.Name + "')"
		if got := (&Database{Server: s, Name: "postgres"}).Text(t, left); got != "0" {
			t.Errorf("%s things are left over", got)
		}
	})
}

func TestSharedServerIsTheSame(t *testing.T) {
	a, b := Postgres(t), Postgres(t)
	if a.URL("x") != b.URL("x") || a.SocketURL("x") != b.SocketURL("x") {
		t.Errorf("%v and %v", a, b)
	}
	other := Postgres(t, Setting("work_mem", "9MB"), NoSync())
	db := other.Database(t)
	if got := db.Text(t, "SELECT current_setting('work_mem') || current_setting('fsync')"); got != "9MBoff" {
		t.Errorf("settings are %s", got)
	}
	defer func() {
		if a.own == nil && recover() == nil {
			t.Error("handed out the control of somebody else's server")
		}
	}()
	a.Control()
}

func TestFreshServerMayBeKilled(t *testing.T) {
	s := Fresh(t)
	db := s.Database(t)
	db.Exec(t, "CREATE TABLE x (n int)")
	if err := s.Control().Kill(); err != nil {
		t.Fatal(err)
	}
	if err := s.Control().Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	db.Exec(t, "INSERT INTO x VALUES (1)")
	if err := s.Control().Stop(t.Context(), localdev.Fast); err != nil {
		t.Fatal(err)
	} // and the test's end does not mind
}

func TestKafkaKeepsWhatItAcknowledged(t *testing.T) {
	c := OwnKafka(t)
	t.Log(c)
	topic := c.Topic(t, 3)
	client := c.Client(t)
	ctx := within(t, 2*time.Minute)
	consumer := c.Consume(t, topic)
	for i, end := range []func(testing.TB){c.Stop, c.Kill} {
		if err := client.ProduceSync(ctx, &kgo.Record{Topic: topic, Key: []byte{byte(i)}}).FirstErr(); err != nil {
			t.Fatal(err)
		}
		end(t)
		c.Start(t)
		records, err := consumer.Until(ctx, func(all []*kgo.Record) bool { return len(all) > i })
		if err != nil || len(records) != i+1 {
			t.Fatalf("%d records, %v", len(records), err)
		}
	}
}

func TestSharedKafka(t *testing.T) {
	c := Kafka(t)
	topic := c.Topic(t, 1)
	ctx := within(t, time.Minute)
	header := kgo.RecordHeader{Key: "event_id", Value: []byte("00112233-4455-6677-8899-aabbccddeeff")}
	results := c.Client(t).ProduceSync(ctx, &kgo.Record{Topic: topic, Headers: []kgo.RecordHeader{header}}, &kgo.Record{Topic: topic})
	if err := results.FirstErr(); err != nil {
		t.Fatal(err)
	}
	consumer := c.ConsumeMatching(t, "^"+topic+"$")
	records, err := consumer.Events(ctx, 1)
	if err != nil {
		t.Fatal(err)
	}
	if id, ok := EventIDOf(records[0]); !ok || id.String() != string(header.Value) {
		t.Errorf("event id %s, %v", id, ok)
	}
	short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	if _, err := consumer.Events(short, 2); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a wait for what does not come ends with %v", err)
	}
}

func TestBrokerBehindProxy(t *testing.T) {
	c := OwnKafka(t, ViaProxy())
	topic := c.Topic(t, 1)
	client := c.Client(t)
	ctx := within(t, time.Minute)
	if err := client.ProduceSync(ctx, &kgo.Record{Topic: topic}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	c.Proxy.Pause()
	acked := make(chan error, 1)
	client.Produce(ctx, &kgo.Record{Topic: topic}, func(_ *kgo.Record, err error) { acked <- err })
	select {
	case err := <-acked:
		t.Errorf("acknowledged (%v) through a proxy that holds everything back", err)
	case <-time.After(200 * time.Millisecond):
	}
	if err := c.Around(t).Ping(ctx); err != nil {
		t.Errorf("around the proxy: %v", err)
	}
	c.Proxy.Resume()
	if err := <-acked; err != nil {
		t.Error(err)
	}
}

// echo answers each connection with what it says.
func echo(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			io.Copy(conn, conn)
			conn.Close()
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return l.Addr().String()
}

func TestProxySpoilsConnections(t *testing.T) {
	p := NewProxy(t)
	p.To(echo(t))
	open := func() (net.Conn, error) {
		conn, err := net.Dial("tcp", p.Addr())
		if err != nil {
			return nil, err
		}
		t.Cleanup(func() { conn.Close() })
		return conn, conn.SetDeadline(time.Now().Add(10 * time.Second))
	}
	dial := func() net.Conn {
		conn, err := open()
		if err != nil {
			t.Fatal(err)
		}
		return conn
	}
	say := func(conn net.Conn) (time.Duration, error) {
		begin := time.Now()
		if _, err := conn.Write([]byte("x")); err != nil {
			return 0, err
		}
		_, err := conn.Read(make([]byte, 1))
		return time.Since(begin), err
	}
	conn := dial()
	if _, err := say(conn); err != nil {
		t.Fatal(err)
	}
	p.Delay(50 * time.Millisecond)
	if took, err := say(conn); err != nil || took < 100*time.Millisecond {
		t.Errorf("answered after %s, %v; want 50 ms each way", took, err)
	}
	p.Delay(0)
	p.Rate(20) // a byte takes 50 ms
	if took, err := say(conn); err != nil || took < 100*time.Millisecond {
		t.Errorf("answered after %s, %v; want 50 ms each way", took, err)
	}
	p.Rate(0)
	p.Pause()
	conn.SetDeadline(time.Now().Add(100 * time.Millisecond))
	if _, err := say(conn); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("while paused: %v", err)
	}
	conn.SetDeadline(time.Now().Add(10 * time.Second))
	p.Resume()
	if _, err := conn.Read(make([]byte, 1)); err != nil {
		t.Errorf("after Resume: %v", err)
	}
	if got := p.Connections(); got != 1 {
		t.Errorf("%d connections", got)
	}
	p.Cut()
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("after Cut: %v", err)
	}
	p.Refuse()
	if conn, err := open(); err == nil { // the reset may come as early as that
		if _, err := say(conn); err == nil {
			t.Error("answered although connections are refused")
		}
	}
	p.Resume()
	if _, err := say(dial()); err != nil {
		t.Errorf("after Resume: %v", err)
	}
}
