package simulation

import (
	"errors"
	"strings"
	"time"

	"walrelay/test/pgfake/memnet"
)

// admit is asked about every new connection.
func (w *world) admit(l *memnet.Link) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.banned[hostOf(l.From)] {
		return errors.New("the process is dead")
	}
	return nil
}

func hostOf(address string) string { return address[:strings.LastIndexByte(address, ':')] }

func (w *world) ban(host string) {
	w.mu.Lock()
	w.banned[host] = true
	w.mu.Unlock()
	for _, n := range []*memnet.Network{w.postgresNet, w.kafkaNet} {
		for _, l := range n.Links() {
			if hostOf(l.From) == host {
				l.Reset()
			}
		}
	}
}

// sew takes back the cuts that have not come to their byte.
func (w *world) sew() {
	for _, l := range append(w.postgresLinks(""), w.kafkaLinks(-1)...) {
		l.CutAfter(memnet.ToServer, -1)
		l.CutAfter(memnet.ToClient, -1)
	}
}

// host is that of the relay that runs in a place; empty while none does.
func (w *world) host(n int) string {
	if p := w.replicas[n%len(w.replicas)].process(); p != nil {
		return p.host
	}
	return ""
}

func (w *world) endProcess(n int, down time.Duration, how func(*process)) {
	if p := w.replicas[n%len(w.replicas)].process(); p != nil {
		p.down.Store(int64(down))
		how(p)
	}
}

// postgresLinks are the connections of a host to PostgreSQL; of all hosts where it is empty.
func (w *world) postgresLinks(host string) []*memnet.Link {
	var links []*memnet.Link
	for _, l := range w.postgresNet.Links() {
		if host == "" || hostOf(l.From) == host {
			links = append(links, l)
		}
	}
	return links
}

// kafkaLinks are the connections to a broker; to all where it is negative.
func (w *world) kafkaLinks(broker int) []*memnet.Link {
	var links []*memnet.Link
	for _, l := range w.kafkaNet.Links() {
		if broker < 0 || l.To == brokerAddress(broker) {
			links = append(links, l)
		}
	}
	return links
}

func (w *world) kafkaDelay(d time.Duration) {
	w.kafkaNet.SetLatency(d)
	for _, l := range w.kafkaLinks(-1) {
		l.SetLatency(d)
	}
}

// brokers takes a broker, or all, off the network, or brings it back.
func (w *world) brokers(n int, up bool) {
	for i, l := range w.ports {
		if n < 0 || i == n%len(w.ports) {
			l.Refuse(!up)
			if !up {
				for _, link := range w.kafkaLinks(i) {
					link.Reset()
				}
			}
		}
	}
}

// lead makes one broker the leader of every partition.
//
// Spread over brokers they would stop virtual time: kgo holds a mutex while it asks for a producer id,
// and the connections to two brokers that want one at the same time wait for each other in a way that
// the bubble does not know from work. So topics are there from the start where there are several
// brokers, and move from one to the next as one.
func (w *world) lead(broker int) error {
	if w.plan.Setup.Brokers == 1 {
		return nil
	}
	w.leader = broker % w.plan.Setup.Brokers
	for _, topic := range topics() {
		for p := range w.plan.Setup.Partitions {
			if err := w.kafka.MoveTopicPartition(topic, int32(p), int32(w.leader)); err != nil {
				return err
			}
		}
	}
	return nil
}
