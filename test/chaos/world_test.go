package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"walrelay/test/harness"
	"walrelay/test/harness/oracle"
	"walrelay/test/integration/fixture"
)

const (
	// recoverLimit is what the relay gets to publish what was committed before a fault was over. It
	// has to wait for back-offs of 10 s, connections of 15 s that nobody has closed, and a topic's creation.
	recoverLimit = 90 * time.Second

	// readLimit is how long the consumer may take to read what is on Kafka.
	readLimit = 10 * time.Second

	// lagLimit is what it gets when all faults are over and nobody writes.
	lagLimit = 2 * time.Minute
)

// world is everything in one run. Its methods are for the test's goroutine, if they do not say otherwise.
type world struct {
	t     *testing.T
	mode  string // RELAY_MODE
	out   io.Writer
	f     *fixture.Fixture
	seed  uint64
	began time.Time
	until time.Time // no fault begins later
	long  bool      // there is time for faults that take long

	pg        *harness.Proxy // between relay and PostgreSQL; the one before Kafka is the cluster's
	services  *harness.Proxy // between writers and PostgreSQL
	writesTo  string         // URL
	ledger    *ledger
	writing   sync.RWMutex   // held shared around each transaction; an operator takes it whole
	slow      *oracle.Writer // for transactions that stay open
	life      int            // how often the audit topic was made
	stopAudit func()

	ctx        context.Context // of everything in the background
	group      errgroup.Group
	stop       context.CancelFunc
	stopWrites context.CancelFunc
	written    errgroup.Group

	relay  *fixture.Binary
	starts []time.Time
	peak   int // bytes
	poison []string

	faults map[string]int
	lag    time.Duration // how long it took in the end

	mu struct {
		sync.Mutex
		broken []violation
		looks  int
	}
}

// violation is a promise of DESIGN.md section 1 that was seen broken.
type violation struct{ promise, story string }

func newWorld(t *testing.T, mode string, seed uint64, server *harness.Server, kafka *harness.Cluster) *world {
	t.Helper()
	w := &world{t: t, mode: mode, out: t.Output(), seed: seed, began: time.Now(), faults: map[string]int{}}
	w.f = fixture.New(t, fixture.On(server), fixture.To(kafka), fixture.Set("RELAY_MODE", mode), fixture.Notify())
	var relayTo string
	w.pg, relayTo = before(t, w.f.DB.URL())
	w.f.Setenv("DATABASE_URL", relayTo)
	w.services, w.writesTo = before(t, w.f.DB.URL())
	var err error
	path := filepath.Join(t.TempDir(), "journal")
	if w.ledger, err = newLedger(path, w.f.Service); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the writers' journal is kept: %s", harness.KeepLog(path, t.Name()+"-journal"))
		}
		if err := w.ledger.file.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

// before is a proxy before a database, and the URL of the database by it.
func before(t *testing.T, database string) (*harness.Proxy, string) {
	t.Helper()
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	p := harness.NewProxy(t)
	p.To(net.JoinHostPort(u.Hostname(), u.Port()))
	u.Host = p.Addr()
	return p, u.String()
}

// begin starts the relay, the writers and those who watch.
func (w *world) begin() {
	w.ctx, w.stop = context.WithCancel(w.t.Context())
	writing, stopWrites := context.WithCancel(w.ctx)
	w.stopWrites = stopWrites
	w.t.Cleanup(func() {
		if err := w.end(); err != nil {
			w.t.Error(err)
		}
	})
	w.start()
	w.relay.Ready(w.t)
	w.readOrders()
	w.readAudit()
	if w.mode != polling { // there is no position to be told too early
		w.group.Go(func() error { return w.watch(w.ctx) })
	}
	w.slow = w.writer()
	for n := range writers {
		writer := w.writer()
		w.written.Go(func() error { return w.write(writing, writer, n) })
	}
}

func (w *world) writer() *oracle.Writer {
	writer := oracle.NewWriter(w.t, w.f.DB, w.f.Table)
	writer.Keep(w.ledger)
	writer.Through(w.writesTo)
	return writer
}

// endWrites returns when no transaction is open any more.
func (w *world) endWrites() error {
	w.stopWrites()
	return w.written.Wait()
}

// end ends everything in the background. It may be called twice.
func (w *world) end() error {
	err := w.endWrites()
	w.stop()
	return errors.Join(err, w.group.Wait())
}

// log prints a line with the time of the run.
func (w *world) log(format string, args ...any) {
	fmt.Fprintf(w.out, "%7.1fs  %s\n", time.Since(w.began).Seconds(), fmt.Sprintf(format, args...))
}

// inject announces a fault and counts it.
func (w *world) inject(kind, detail string, args ...any) {
	w.faults[kind]++
	w.log("%-28s %s", kind, fmt.Sprintf(detail, args...))
}

// broke notes a broken promise. Any goroutine may call it.
func (w *world) broke(promise, format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	story := fmt.Sprintf(format, args...)
	w.mu.broken = append(w.mu.broken, violation{promise, story})
	w.log("BROKEN: %s: %s", promise, story)
}

func (w *world) start() {
	w.relay = w.f.Binary(w.t)
	w.starts = append(w.starts, time.Now())
}

// remember notes the memory of the relay, before it ends.
func (w *world) remember() {
	if w.relay.Running() {
		w.peak = max(w.peak, fixture.PeakMemory(w.relay.Pid()))
	}
}

// lives says whether the relay runs. No fault of the others may end it; if one has, that is noted, and
// it is started again.
func (w *world) lives() {
	w.remember()
	if w.relay.Running() {
		return
	}
	w.broke(progress, "the relay ended by itself with exit code %d:\n%s", w.relay.Code(w.t), tail(w.relay.Log()))
	w.start()
}

// tail is the end of a log, for people.
func tail(log string) string {
	const lines = 15
	all := strings.Split(strings.TrimSpace(log), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// calm waits until everything that was committed up to now is on Kafka and confirmed to PostgreSQL. It
// returns false when that takes too long.
func (w *world) calm() bool {
	n, began := w.ledger.committed(), time.Now()
	ctx, cancel := context.WithTimeout(w.t.Context(), recoverLimit)
	defer cancel()
	if !w.published(ctx, n) || !w.confirmed(ctx) {
		return false
	}
	w.log("%-28s %d events written, all that were committed when it was over are published after %.1f s", "", w.ledger.committed(), time.Since(began).Seconds())
	return true
}

// published waits until the first n committed events are on Kafka.
func (w *world) published(ctx context.Context, n int) bool {
	doubt := time.After(readLimit)
	for {
		settled, moved := w.ledger.settled(n)
		if settled {
			return true
		}
		select {
		case <-moved:
		case <-time.After(time.Second): // the relay may end meanwhile
			w.lives()
		case <-doubt:
			if lost := w.marked(w.ledger.missing(n)); len(lost) > 0 {
				w.broke(delivered, "%d events are marked as published and nobody has read them: %s", len(lost), name(lost))
				return false
			}
			doubt = time.After(readLimit)
		case <-ctx.Done():
			missing := w.ledger.missing(n)
			w.broke(progress, "%d of %d events are not on Kafka %v after the last fault: %s\n%s", len(missing), n, recoverLimit, name(missing), tail(w.relay.Log()))
			return false
		}
	}
}

// marked are those of the events that have been marked as published for longer than anybody takes to read
// them.
func (w *world) marked(events []*event) (all []*event) {
	if len(events) == 0 {
		return nil
	}
	ids := make([]string, len(events))
	for i, e := range events {
		ids[i] = strconv.FormatInt(e.RowID, 10)
	}
	text := w.f.DB.Text(w.t, fmt.Sprintf("SELECT ',' || coalesce(string_agg(id::text, ','), '') || ',' FROM outbox WHERE published_at < clock_timestamp() - interval '%d s' AND id IN (%s)",
		readLimit/time.Second, strings.Join(ids, ",")))
	for i, e := range events {
		if strings.Contains(text, ","+ids[i]+",") {
			all = append(all, e)
		}
	}
	return all
}

// confirmed waits until the slot has confirmed everything that is committed now, and notes it.
func (w *world) confirmed(ctx context.Context) bool {
	if w.mode == polling {
		return w.settled(ctx)
	}
	n := w.ledger.committed()
	written := w.f.DB.Text(w.t, "SELECT pg_current_wal_lsn()")
	err := until(ctx, "the slot has confirmed "+written, func() (bool, string) {
		w.lives()
		slot := w.f.DB.Text(w.t, fmt.Sprintf("SELECT coalesce((SELECT (confirmed_flush_lsn >= '%s') || ' ' || confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = '%s'), 'no slot')", written, w.f.Slot))
		return strings.HasPrefix(slot, "t"), slot
	})
	if err != nil {
		w.broke(progress, "%v\n%s", err, tail(w.relay.Log()))
		return false
	}
	w.ledger.confirmed(n)
	return true
}

// settled is confirmed where the table is all that a relay goes by: what is unmarked now is marked later.
func (w *world) settled(ctx context.Context) bool {
	n := w.ledger.committed()
	ids := w.f.DB.Text(w.t, "SELECT coalesce(string_agg(id::text, ','), '0') FROM outbox WHERE published_at IS NULL")
	err := until(ctx, "rows are marked", func() (bool, string) {
		w.lives()
		left := w.f.DB.Text(w.t, "SELECT count(*) FROM outbox WHERE published_at IS NULL AND id IN ("+ids+")")
		return left == "0", left + " are not"
	})
	if err != nil {
		w.broke(progress, "%v\n%s", err, tail(w.relay.Log()))
		return false
	}
	w.ledger.confirmed(n)
	return true
}

// name names the first events.
func name(events []*event) string {
	var b strings.Builder
	for i, e := range events {
		if i == 5 {
			fmt.Fprintf(&b, "and %d more", len(events)-i)
			break
		}
		fmt.Fprintf(&b, "row %d %s key %q on %s; ", e.RowID, e.EventID, e.Key, e.topic)
	}
	return strings.TrimSuffix(b.String(), "; ")
}
