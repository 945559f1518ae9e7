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
	"github.com/twmb/franz-go/pkg/kmsg"
)

// reach knows whether Kafka can be reached, and says so once for each change. kgo tells it of every
// connection (it is a hook), the topic lookups of every request.
//
// Kafka is unreachable when a connection could not be opened and none is alive, or when a request got
// no answer at all. One dead broker of several is not that: kgo goes on with the others, and records
// that only the dead one could take are watched by their age.
//
// A refusal of trust (refused) ends the relay: at once while no broker has accepted it yet, since
// then something is configured wrongly; later only when it has lasted for refusedWait. Passwords and
// certificates are renewed on two sides, and one is first.
//
// A connection that is open is not for that reason alive. kgo reads from it only while it waits for an
// answer, so one that it made to find the cluster, and has not used since, outlives the cluster by
// connIdleTimeout.
type reach struct {
	cfg   *Config
	log   *slog.Logger
	fatal chan error // what no retry mends: refused credentials

	mu struct {
		sync.Mutex
		open  map[net.Conn]int32  // the node at the other end; below 0: an address of KAFKA_BROKERS, used until nodes are known
		heard map[int32]time.Time // of each node, the last answer
		state reachState
		since time.Time
		err   error // of the last failure, while unreachable

		accepted bool      // by any broker, ever
		refused  time.Time // first refusal since a broker was reachable; zero where the last failure was none
	}
}

type reachState uint8

const (
	untried reachState = iota
	reachable
	unreachable
)

// refusedWait is how long a relay that was accepted before goes on trying when it is refused.
const refusedWait = time.Minute

func newReach(cfg *Config, log *slog.Logger) *reach {
	r := &reach{cfg: cfg, log: log, fatal: make(chan error, 1)}
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

// remedy is what to check while Kafka cannot be reached.
func (r *reach) remedy() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.state == unreachable {
		if remedy := r.remedyLocked(r.mu.err); remedy != "" {
			return remedy
		}
	}
	return "check KAFKA_BROKERS and that the brokers run"
}

func (r *reach) remedyLocked(err error) string {
	remedy := r.cfg.remedy(err)
	if remedy == "" && !r.mu.accepted {
		remedy = r.cfg.mismatch(err)
	}
	return remedy
}

// OnBrokerConnect is called by kgo after each attempt to connect, with the greeting and the login in it.
// Success is no proof yet: to a client that does not log in, a broker that wants a login says so by
// closing the connection at the first request.
func (r *reach) OnBrokerConnect(meta kgo.BrokerMetadata, _ time.Duration, conn net.Conn, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		r.mu.open[conn] = meta.NodeID
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

// OnBrokerRead is called by kgo after each answer, and when none could be read. What belongs to the
// greeting and the login proves nothing: a broker answers those to anyone, and may then refuse.
func (r *reach) OnBrokerRead(meta kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, err error) {
	if err != nil || key == int16(kmsg.ApiVersions) || key == int16(kmsg.SASLHandshake) || key == int16(kmsg.SASLAuthenticate) {
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
	r.mu.accepted, r.mu.refused = true, time.Time{}
}

func (r *reach) downLocked(err error, broker string) {
	if errors.Is(err, context.Canceled) || errors.Is(err, kgo.ErrClientClosed) {
		return // we ended it ourselves
	}
	now := time.Now()
	wasRefused := !r.mu.refused.IsZero()
	if refused(err) {
		if !wasRefused {
			r.mu.refused = now
		}
		if !r.mu.accepted || now.Sub(r.mu.refused) >= refusedWait {
			r.giveUp(err, r.remedyLocked(err))
		}
	} else {
		r.mu.refused = time.Time{}
		if Classify(err) == Fatal {
			r.giveUp(err, "check the permissions of its user")
		}
	}
	r.mu.err = err
	if r.mu.state == unreachable && wasRefused == !r.mu.refused.IsZero() {
		return
	}
	if r.mu.state != unreachable {
		r.mu.state, r.mu.since = unreachable, now
	}
	attrs := []any{"error", err}
	if broker != "" {
		attrs = []any{"broker", broker, "error", err}
	}
	if remedy := r.remedyLocked(err); remedy != "" {
		attrs = append(attrs, "remedy", remedy)
	}
	if r.mu.accepted && !r.mu.refused.IsZero() {
		attrs = append(attrs, "wait", refusedWait)
	}
	r.log.Warn("kafka unreachable", attrs...)
}

// giveUp ends the relay.
func (r *reach) giveUp(err error, remedy string) {
	select {
	case r.fatal <- fmt.Errorf("kafka refuses this relay: %w: %s", err, remedy):
	default:
	}
}
