package sink

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// reach knows whether Kafka can be reached, and says so once for each change. kgo tells it of every
// connection (it is a hook), the topic lookups of every request.
//
// Kafka is unreachable when a connection could not be opened and none is alive, or when a request got
// no answer at all. One dead broker of several is not that: kgo goes on with the others, and records
// that only the dead one could take are watched by their age.
//
// A connection that is open is not for that reason alive. kgo reads from it only while it waits for an
// answer, so one that it made to find the cluster, and has not used since, outlives the cluster by
// connIdleTimeout.
type reach struct {
	log   *slog.Logger
	fatal chan error // what no retry mends: refused credentials

	mu struct {
		sync.Mutex
		open  map[net.Conn]int32  // the node at the other end; below 0: an address of KAFKA_BROKERS, used until nodes are known
		heard map[int32]time.Time // of each node, the last answer
		state reachState
		since time.Time
		err   error // of the last failure, while unreachable
	}
}

type reachState uint8

const (
	untried reachState = iota
	reachable
	unreachable
)

func newReach(log *slog.Logger) *reach {
	r := &reach{log: log, fatal: make(chan error, 1)}
	r.mu.open = make(map[net.Conn]int32)
	r.mu.heard = make(map[int32]time.Time)
	return r
}

func (r *reach) connected() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.state == reachable
}

// why is nil while Kafka can be reached.
func (r *reach) why() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch r.mu.state {
	case reachable:
		return nil
	case unreachable:
		return r.mu.err
	}
	return errors.New("no broker has answered yet")
}

// OnBrokerConnect is called by kgo after each attempt to connect, with the greeting and the login in it.
func (r *reach) OnBrokerConnect(meta kgo.BrokerMetadata, _ time.Duration, conn net.Conn, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		r.mu.open[conn] = meta.NodeID
		r.upLocked()
		return
	}
	if !r.aliveLocked(meta.NodeID, time.Now()) {
		r.downLocked(err, net.JoinHostPort(meta.Host, fmt.Sprint(meta.Port)))
	}
}

// trust is how long an answer vouches for the other connections to its node.
const trust = 5 * time.Second

// aliveLocked says whether any open connection is worth anything, now that failed could not be connected
// to. An idle one to another node is: kgo will use it before it gives up, and will notice then.
func (r *reach) aliveLocked(failed int32, now time.Time) bool {
	for _, node := range r.mu.open {
		if node >= 0 && node != failed || now.Sub(r.mu.heard[node]) < trust {
			return true
		}
	}
	return false
}

// OnBrokerRead is called by kgo after each answer, and when none could be read.
func (r *reach) OnBrokerRead(meta kgo.BrokerMetadata, _ int16, _ int, _, _ time.Duration, err error) {
	if err != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.heard[meta.NodeID] = time.Now()
	r.upLocked()
}

// OnBrokerDisconnect is called by kgo when a connection ends, also one that was never ready to use and
// was reported as a failure to connect.
func (r *reach) OnBrokerDisconnect(_ kgo.BrokerMetadata, conn net.Conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.mu.open, conn)
}

// answered notes how a request of ours ended.
func (r *reach) answered(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		r.upLocked()
		return
	}
	r.downLocked(err, "")
}

func (r *reach) upLocked() {
	now := time.Now()
	switch r.mu.state {
	case reachable:
		return
	case untried:
		r.log.Info("kafka reachable")
	case unreachable:
		r.log.Info("kafka reachable again", "after", now.Sub(r.mu.since).Round(time.Millisecond))
	}
	r.mu.state, r.mu.since, r.mu.err = reachable, now, nil
}

func (r *reach) downLocked(err error, broker string) {
	if errors.Is(err, context.Canceled) || errors.Is(err, kgo.ErrClientClosed) {
		return // we ended it ourselves
	}
	if Classify(err) == Fatal {
		select {
		case r.fatal <- fmt.Errorf("kafka refuses this relay: %w: check the credentials and the permissions of its user", err):
		default:
		}
	}
	r.mu.err = err
	if r.mu.state == unreachable {
		return
	}
	r.mu.state, r.mu.since = unreachable, time.Now()
	if broker == "" {
		r.log.Warn("kafka unreachable", "error", err)
		return
	}
	r.log.Warn("kafka unreachable", "broker", broker, "error", err)
}
