package pgfake_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caarlos0/env/v11"
	"github.com/prometheus/client_golang/prometheus"

	"walrelay/checkpoint"
	"walrelay/internal/source"
	"walrelay/outbox"
	"walrelay/replication"
	"walrelay/test/pgfake"
	"walrelay/test/pgfake/memnet"
)

// kafka acknowledges every event after a moment, and late.
type kafka struct {
	late     time.Duration
	mu       sync.Mutex
	seen     map[outbox.EventID]int
	resolved map[outbox.EventID]bool
	out      int
}

func (k *kafka) Publish(ev *outbox.Event, token uint64, to source.Acker) error {
	id := ev.ID
	k.mu.Lock()
	defer k.mu.Unlock()
	k.seen[id]++
	k.out++
	time.AfterFunc(k.late+time.Duration(1+rand.IntN(20))*time.Millisecond, func() {
		k.mu.Lock()
		k.resolved[id] = true
		k.out--
		k.mu.Unlock()
		to.Acked(token, nil)
	})
	return nil
}

func (k *kafka) Hurry()                {}
func (k *kafka) Wake() <-chan struct{} { return nil }

func (k *kafka) acked(id outbox.EventID) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.resolved[id]
}

// The relay's own source runs against the fake as against a server, through every kind of fault,
// and the judge has nothing to say.
func TestTheRealSource(t *testing.T) {
	for _, after := range []checkpoint.AfterPublish{checkpoint.Mark, checkpoint.Delete, checkpoint.Keep} {
		for _, major := range []int{14, 15, 16, 17, 18} {
			t.Run(fmt.Sprintf("%s/%d", after, major), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { realSource(t, after, major) })
			})
		}
	}
}

// life is the relay's own source beside a fresh server, in a bubble.
type life struct {
	net    *memnet.Network
	srv    *pgfake.Server
	kafka  *kafka
	source *replication.Source
	stop   context.CancelFunc
	group  sync.WaitGroup
	ends   []error // of its sessions
	dialled
}

// live starts both. change may alter the options; end must be called.
func live(t *testing.T, after checkpoint.AfterPublish, major int, change func(*life, *replication.Options)) *life {
	t.Helper()
	l := &life{net: memnet.New(), kafka: &kafka{seen: make(map[outbox.EventID]int), resolved: make(map[outbox.EventID]bool)}}
	modes := map[checkpoint.AfterPublish]pgfake.After{checkpoint.Mark: pgfake.Mark, checkpoint.Delete: pgfake.Delete, checkpoint.Keep: pgfake.Keep}
	l.srv = pgfake.New(pgfake.Config{Major: major, Judge: pgfake.JudgeConfig{Resolved: l.kafka.acked, After: modes[after], NeedLock: true}})
	listener, err := l.net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	l.group.Go(func() { _ = l.srv.Serve(listener) })
	dial := l.net.From(relayHost)
	o := replication.Options{
		Database: "postgres://relay@" + address + "/app?sslmode=disable", AfterPublish: after, Publisher: l.kafka,
		RowLimit: 1 << 20, Registry: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler),
		Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
			return l.keep(dial(ctx, network, addr))
		},
	}
	if err := errors.Join(env.Parse(&o.Config), env.Parse(&o.Outbox)); err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(l, &o)
	}
	if l.source, err = replication.New(o); err != nil {
		t.Fatal(err)
	}
	soft, stop := context.WithCancel(context.Background())
	l.stop = stop
	l.group.Go(func() { l.run(soft) })
	time.Sleep(time.Second)
	return l
}

const relayHost = "10.0.0.9"

// run keeps a session running. A new one begins once the promises of the old one are back.
func (l *life) run(soft context.Context) {
	for soft.Err() == nil {
		if err := l.source.Session(soft, context.Background()); err != nil {
			l.ends = append(l.ends, err)
		}
		for busy := true; busy; {
			time.Sleep(100 * time.Millisecond)
			l.kafka.mu.Lock()
			busy = l.kafka.out > 0
			l.kafka.mu.Unlock()
		}
	}
}

// end stops both, and says what the judge has seen.
func (l *life) end(t *testing.T) {
	t.Helper()
	l.stop()
	synctest.Wait()
	time.Sleep(10 * time.Second)
	l.srv.Close()
	l.group.Wait()
	for _, v := range l.srv.Judge().Violations() {
		t.Error(v)
	}
	for _, sql := range l.srv.Unhandled() {
		t.Errorf("no handler: %s", sql)
	}
}

func realSource(t *testing.T, after checkpoint.AfterPublish, major int) {
	l := live(t, after, major, nil)
	srv, k := l.srv, l.kafka
	work(srv, l.net)
	time.Sleep(time.Minute)
	l.end(t)

	events, repeats, lost := 0, 0, 0
	for _, txn := range srv.Txns() {
		for _, row := range txn.Rows() {
			events++
			repeats += max(k.seen[row.EventID]-1, 0)
			if k.seen[row.EventID] > 0 {
				continue
			}
			if lost++; lost <= 3 {
				t.Errorf("lost: event %s of transaction %d", row.EventID, txn.XID)
			}
		}
	}
	if left := srv.Unmarked(); left > 0 && after != checkpoint.Keep {
		t.Errorf("%d rows are not settled", left)
	}
	slot, _ := srv.Slot("walrelay")
	if insert, _ := srv.LSN(); slot.ConfirmedFlushLSN != insert {
		t.Errorf("confirmed %s of %s", slot.ConfirmedFlushLSN, insert)
	}
	if t.Failed() || testing.Verbose() {
		t.Logf("%d events, %d lost, %d repeated, %d statuses; sessions ended: %q", events, lost, repeats, srv.Judge().Statuses(), l.ends)
	}
}

// work writes and breaks things in turn.
func work(srv *pgfake.Server, net *memnet.Network) {
	breaks := []func(){
		func() {},
		func() { net.Links()[0].Reset() },
		func() { srv.Crash(); srv.Start() },
		func() { srv.Terminate(func(c *pgfake.Conn) bool { return c.Replication() }) },
		func() {
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			defer cancel()
			_ = srv.Stop(ctx)
			srv.Start()
		},
		func() { srv.RunningXacts(); srv.Noise(5000) },
	}
	for range 3 {
		for _, f := range breaks {
			for i := range 20 {
				tx := srv.Begin()
				tx.Insert(row("a"), row("b"))
				srv.Commit(row("c"))
				tx.Insert(row("d"))
				tx.CommitHidden()
				time.Sleep(3 * time.Millisecond)
				if i%7 == 3 { // long enough to be acknowledged, settled in vain and confirmed by mistake (H1)
					time.AfterFunc(5*time.Second, tx.Show)
				} else {
					tx.Show()
				}
			}
			if len(net.Links()) > 0 {
				f()
			}
			time.Sleep(5 * time.Second)
		}
	}
}
