package simulation

import (
	"context"
	"fmt"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"golang.org/x/sync/errgroup"

	"walrelay/checkpoint"
	"walrelay/outbox"
	"walrelay/replication"
	"walrelay/test/pgfake"
	"walrelay/test/pgfake/memnet"
)

const (
	slotName        = "walrelay"
	postgresAddress = "10.0.0.1:5432"
	firstPort       = 9092

	// healing is how long a relay may take, after the last fault, to have published, settled and
	// confirmed everything. Its own back-off goes up to ten seconds, a topic that was given up is looked
	// at every fifteen, and a half-open connection is noticed after wal_sender_timeout, which may have
	// grown to five minutes.
	healing = 20 * time.Minute
	// ending is how long a relay may take to stop with nothing in its way.
	ending = time.Minute
	// lingering is how long pgconn may go on reading from a connection that it gave up, after a time-out.
	lingering = 16 * time.Second
	// looking is how often the world is looked at meanwhile.
	looking = 250 * time.Millisecond
)

// world is one history as it happens.
type world struct {
	plan        Plan
	ticks       *atomic.Int64
	postgresNet *memnet.Network
	kafkaNet    *memnet.Network
	pg          *pgfake.Server
	kafka       *kfake.Cluster
	ledger      *ledger
	log         *journal
	replicas    []*replica
	began       time.Time
	pending     sync.WaitGroup // what later has begun
	serverBusy  sync.Mutex     // one fault at a time starts and stops PostgreSQL

	mu        sync.Mutex
	banned    map[string]bool
	ports     []*memnet.Listener
	leader    int     // broker of all partitions
	recent    []int64 // ids of rows that faults may touch
	poison    map[outbox.EventID]bool
	images    []image
	lost      map[int64]bool // rows whose settle was lost, and that the slot is past
	rewritten []time.Time    // when the server was given another history
	excuses   map[exit]time.Time
	exits     map[string]int
	processes int
	forgot    bool // a broker has forgotten its producers
	hits      int  // of faults in Kafka's protocol
	skipped   int  // faults that found another one under way
	broken    []Violation
	row       int64 // bytes of the largest row
	counts    Counts
}

// image is a copy of the data directory.
type image struct {
	at  time.Time
	img *pgfake.Image
}

// exit is a way for a relay to end that asks for a person.
type exit uint8

const (
	exitMode exit = iota
	exitFatal
)

func brokerAddress(n int) string { return fmt.Sprintf("127.0.0.1:%d", firstPort+n) }

// play runs the plan in a bubble of its own. It reports nothing to t. Every look at the world adds to
// ticks, so that who waits outside sees whether time passes.
func play(t *testing.T, p Plan, ticks *atomic.Int64) (r Result) {
	defer func() {
		if why := recover(); why != nil {
			buf := make([]byte, 1<<20)
			r.Broken = append(r.Broken, Violation{NothingRuns, 0, fmt.Sprintf("%v\n%s", why, left(buf[:runtime.Stack(buf, true)]))})
		}
	}()
	r.Plan = p
	synctest.Test(t, func(*testing.T) { newWorld(p, ticks).live(&r) })
	return r
}

// left are the stacks of goroutines that wait in a bubble; where histories run side by side, in any.
func left(stacks []byte) string {
	var out []string
	for s := range strings.SplitSeq(string(stacks), "\n\n") {
		if first, _, _ := strings.Cut(s, "\n"); strings.Contains(first, "(durable)") && !strings.Contains(s, "synctest.Run") {
			out = append(out, s)
		}
	}
	return strings.Join(out, "\n\n")
}

func newWorld(p Plan, ticks *atomic.Int64) *world {
	w := &world{
		plan: p, ticks: ticks, postgresNet: memnet.New(), kafkaNet: memnet.New(), ledger: newLedger(), log: &journal{}, began: time.Now(),
		banned: make(map[string]bool), poison: make(map[outbox.EventID]bool),
		excuses: make(map[exit]time.Time), exits: make(map[string]int),
	}
	after := map[checkpoint.AfterPublish]pgfake.After{checkpoint.Mark: pgfake.Mark, checkpoint.Delete: pgfake.Delete, checkpoint.Keep: pgfake.Keep}
	w.pg = pgfake.New(pgfake.Config{
		Major: p.Setup.Major, SlotLinger: p.Setup.Linger, FloodPause: time.Millisecond,
		Judge: pgfake.JudgeConfig{Resolved: w.ledger.resolved, After: after[p.Setup.After], NeedLock: true, Slack: 2 * p.Setup.Delay},
	})
	for _, n := range []*memnet.Network{w.postgresNet, w.kafkaNet} {
		n.SetLatency(p.Setup.Delay)
		n.SetBuffer(p.Setup.Buffer)
		n.OnDial(w.admit)
	}
	return w
}

// live is the whole history.
func (w *world) live(r *Result) {
	defer w.report(r)
	var servers errgroup.Group
	if err := w.open(&servers); err != nil {
		w.say(NothingRuns, "the world could not be made: %v", err)
		return
	}
	if w.plan.Setup.Slot {
		w.pg.CreateSlot(slotName)
	}
	running, stop := context.WithCancel(context.Background())
	var relays sync.WaitGroup
	for i := range w.plan.Setup.Relays {
		rep := &replica{n: i, w: w}
		w.replicas = append(w.replicas, rep)
		relays.Go(func() {
			if sleep(running, time.Duration(i)*100*time.Millisecond) {
				rep.run(running)
			}
		})
	}
	if !w.plan.Setup.Slot {
		w.awaitSlot()
	}
	w.began = time.Now()
	for _, step := range w.plan.Steps {
		w.watchUntil(w.began.Add(step.At))
		step.Do.do(w)
	}
	w.pending.Wait()
	w.watchUntil(time.Now().Add(time.Second))
	w.sew()
	w.heal()
	stop()
	if !within(ending, relays.Wait) {
		w.say(NothingRuns, "a relay did not stop within %v", ending)
		for _, rep := range w.replicas {
			if p := rep.process(); p != nil {
				p.kill()
			}
		}
		relays.Wait()
	}
	records, err := w.read()
	if err != nil {
		w.say(NothingRuns, "kafka could not be read: %v", err)
	}
	w.judge(records)
	w.pg.Close()
	w.kafka.Close()
	if err := servers.Wait(); err != nil {
		w.say(NothingRuns, "a server: %v", err)
	}
	time.Sleep(lingering) // what is left after it is found by the end of the bubble
}

func (w *world) open(servers *errgroup.Group) error {
	l, err := w.postgresNet.Listen("tcp", postgresAddress)
	if err != nil {
		return err
	}
	servers.Go(func() error { return w.pg.Serve(l) })
	ports := make([]int, w.plan.Setup.Brokers)
	for i := range ports {
		ports[i] = firstPort + i
	}
	opts := []kfake.Opt{
		kfake.NumBrokers(len(ports)), kfake.Ports(ports...), kfake.DefaultNumPartitions(w.plan.Setup.Partitions), kfake.SleepOutOfOrder(),
		kfake.ListenFn(func(network, address string) (net.Listener, error) {
			l, err := w.kafkaNet.Listen(network, address)
			if err == nil {
				w.ports = append(w.ports, l.(*memnet.Listener))
			}
			return l, err
		}),
	}
	if len(ports) > 1 {
		opts = append(opts, kfake.SeedTopics(int32(w.plan.Setup.Partitions), topics()...))
	}
	if w.kafka, err = kfake.NewCluster(opts...); err != nil {
		return err
	}
	return w.lead(0)
}

// awaitSlot waits for the relay to make its slot and to stream: rows that are older than a slot would
// be no part of its stream, and the relay refuses to make one where there are such rows.
func (w *world) awaitSlot() {
	for range 400 {
		if p := w.replicas[0].process(); p != nil && p.relay.Status().Phase == string(replication.PhaseStreaming) {
			return
		}
		time.Sleep(looking)
	}
}

// watchUntil lets time pass and looks at the relays' memory meanwhile.
func (w *world) watchUntil(at time.Time) {
	for {
		w.look()
		left := time.Until(at)
		if left <= 0 {
			return
		}
		time.Sleep(min(left, looking))
	}
}

// look checks what must hold at every moment, and keeps images for Restore.
func (w *world) look() {
	w.ticks.Add(1)
	for _, r := range w.replicas {
		if p := r.process(); p != nil {
			w.noteMemory(p)
		}
	}
	if w.restores() && w.serverBusy.TryLock() {
		w.photograph()
		w.serverBusy.Unlock()
	}
}

// photograph keeps an image of the data directory every other second.
func (w *world) photograph() {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	if n := len(w.images); n > 0 && now.Sub(w.images[n-1].at) < 2*time.Second {
		return
	}
	if _, ok := w.pg.Slot(slotName); ok {
		w.images = append(w.images, image{now, w.pg.Image()})
	}
}

func (w *world) restores() bool {
	for _, s := range w.plan.Steps {
		if _, ok := s.Do.(Restore); ok {
			return true
		}
	}
	return false
}

// later does something after a while. The history goes on until all of it is done.
func (w *world) later(d time.Duration, f func()) {
	w.pending.Add(1)
	time.AfterFunc(d, func() {
		defer w.pending.Done()
		f()
	})
}

// outage takes PostgreSQL down by f, and up again.
func (w *world) outage(f func(), down, recovery time.Duration) {
	if !w.serverBusy.TryLock() {
		w.mu.Lock()
		w.skipped++
		w.mu.Unlock()
		return
	}
	w.later(0, func() {
		defer w.serverBusy.Unlock()
		f()
		time.Sleep(down)
		if recovery > 0 {
			w.pg.Recover()
			time.Sleep(recovery)
		}
		w.pg.Start()
	})
}

// anotherHistory notes that positions mean something else from now on, and which rows have lost their
// settle although the slot is past them: no stream brings those again, they are the sweep's.
func (w *world) anotherHistory(f func()) {
	f()
	slot, _ := w.pg.Slot(slotName)
	lost := make(map[int64]bool)
	for _, txn := range w.pg.Txns() {
		if txn.End > slot.ConfirmedFlushLSN {
			break
		}
		for _, r := range txn.Rows() {
			if st, ok := w.pg.Row(r.ID); ok && r.Relation == "" && st.Row.EventID == r.EventID && st.Marked.IsZero() {
				lost[r.ID] = true
			}
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lost = lost
	w.rewritten = append(w.rewritten, time.Now())
	w.images = nil
	w.recent = nil
}

// imageOf is the newest image of that age.
func (w *world) imageOf(age time.Duration) *pgfake.Image {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := len(w.images) - 1; i >= 0; i-- {
		if time.Since(w.images[i].at) >= age {
			return w.images[i].img
		}
	}
	return nil
}

// foresee notes what must be known of rows when the relay has them, which may be before the commit returns.
func (w *world) foresee(rows []pgfake.Row, poison outbox.EventID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if poison != (outbox.EventID{}) {
		w.poison[poison] = true
	}
	for _, r := range rows {
		w.row = max(w.row, int64(len(r.Payload)))
	}
}

// committed notes a transaction; nil is one that a crash has rolled back.
func (w *world) committed(txn *pgfake.Txn, poison outbox.EventID) {
	if txn == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	rows := txn.Rows()
	for i, r := range rows {
		if r.Relation == "" && r.EventID != poison && (i < 3 || i > len(rows)-3) {
			w.recent = append(w.recent, r.ID)
		}
	}
	if n := len(w.recent); n > 40 {
		w.recent = append(w.recent[:0], w.recent[n-20:]...)
	}
}

func (w *world) excuse(e exit, d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if until := time.Now().Add(d); until.After(w.excuses[e]) {
		w.excuses[e] = until
	}
}

func (w *world) excused(e exit) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Now().Before(w.excuses[e])
}
