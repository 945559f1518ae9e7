package sink

import (
	"errors"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// The only broker is killed. The connection that found it was idle since, and nobody reads from it.
func TestIdleConnectionIsNoProof(t *testing.T) {
	r := newReach(&Config{}, slog.New(slog.DiscardHandler))
	seed, node := kgo.BrokerMetadata{NodeID: -1 << 31, Host: "kafka", Port: 9092}, kgo.BrokerMetadata{NodeID: 1, Host: "kafka-1", Port: 9092}
	conns := func() net.Conn { c, _ := net.Pipe(); return c }
	refused := errors.New("connection refused")
	producing := conns()
	r.OnBrokerConnect(seed, 0, conns(), nil)
	r.OnBrokerConnect(node, 0, conns(), nil)
	r.OnBrokerConnect(node, 0, producing, nil)
	r.OnBrokerRead(node, 0, 0, 0, 0, nil)
	r.OnBrokerDisconnect(node, producing)
	r.OnBrokerConnect(node, 0, nil, refused)
	if !r.connected() {
		t.Error("unreachable although it has just answered")
	}
	r.mu.heard[node.NodeID] = time.Now().Add(-trust)
	r.OnBrokerConnect(node, 0, nil, refused)
	if r.connected() {
		t.Error("reachable because of connections that nobody reads from")
	}
	r.OnBrokerRead(node, 0, 0, 0, 0, nil)
	if !r.connected() {
		t.Error("unreachable although it answers: perhaps it takes no more connections")
	}
	other := kgo.BrokerMetadata{NodeID: 2, Host: "kafka-2", Port: 9092}
	r.OnBrokerConnect(other, 0, conns(), nil)
	r.mu.heard[node.NodeID] = time.Now().Add(-trust)
	r.OnBrokerConnect(node, 0, nil, refused)
	if !r.connected() {
		t.Error("unreachable because of one node of two")
	}
}
