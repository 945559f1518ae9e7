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
// Kafka is unreachable when a connection could not be opened and none is open, or when a request got
// no answer at all. One dead broker of several is not that: kgo goes on with the others, and records
// that only the dead one could take are watched by their age.
type reach struct {
	log   *slog.Logger
	fatal chan error // what no retry mends: refused credentials

	mu struct {
		sync.Mutex
		open  map[net.Conn]struct{}
		state reachState
		since time.Time
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
	r.mu.open = make(map[net.Conn]struct{})
	return r
}

func (r *reach) connected() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.state == reachable
}

// OnBrokerConnect is called by kgo after each attempt to connect, with the greeting and the login in it.
func (r *reach) OnBrokerConnect(meta kgo.BrokerMetadata, _ time.Duration, conn net.Conn, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		r.mu.open[conn] = struct{}{}
		r.upLocked()
		return
	}
	if len(r.mu.open) == 0 {
		r.downLocked(err, net.JoinHostPort(meta.Host, fmt.Sprint(meta.Port)))
	}
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
	r.mu.state, r.mu.since = reachable, now
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
