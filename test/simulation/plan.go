// Package simulation runs seeded histories of the real relay: its PostgreSQL is package pgfake, its
// Kafka is kfake, the network between them is package memnet, and all of it lives in one
// testing/synctest bubble, where time is virtual and a minute of outage costs nothing.
//
// A seed makes a Plan: who writes what, what breaks, when. Run plays it, lets the faults end, and
// holds what happened against the promises of DESIGN.md section 1. A plan that breaks one is shrunk
// and told as a story.
//
// The plan of a seed is always the same. What cannot be repeated exactly is the order in which
// goroutines run between two instants of virtual time, and the jitter of the relay's own back-off.
package simulation

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"walrelay/checkpoint"
)

// Plan is one history before it has happened.
type Plan struct {
	Seed  uint64
	Setup Setup
	Steps []Step // ordered by time
}

// Setup is what does not change in a history.
type Setup struct {
	After      checkpoint.AfterPublish
	Major      int // of PostgreSQL
	Brokers    int
	Partitions int
	Relays     int           // 2: the second is a standby
	MaxMessage int           // KAFKA_MAX_MESSAGE_BYTES
	Status     time.Duration // REPLICATION_STATUS_INTERVAL
	Delay      time.Duration // of the network, each way
	Linger     time.Duration // how long a slot stays active after its connection has ended
	Buffer     int           // bytes in a socket's buffers, each way
	Slot       bool          // the slot is there before the first relay starts
}

func (s Setup) String() string {
	return fmt.Sprintf("PostgreSQL %d, %d brokers, %d partitions, %d relays (%s), messages of %d bytes at most, status every %v, network delay %v, buffers of %d bytes, slots linger %v",
		s.Major, s.Brokers, s.Partitions, s.Relays, s.After, s.MaxMessage, s.Status, s.Delay, s.Buffer, s.Linger)
}

// Step is one thing that happens.
type Step struct {
	At time.Duration
	Do Action
}

// Action is what a step does. It does not wait: what takes time goes on by itself and is over within
// the time that its description names.
type Action interface {
	fmt.Stringer
	do(w *world)
}

func (p Plan) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d: %s\n", p.Seed, p.Setup)
	for _, s := range p.Steps {
		fmt.Fprintf(&b, "  %9.3fs  %s\n", s.At.Seconds(), s.Do)
	}
	return b.String()
}

// without is the plan less steps [from, to).
func (p Plan) without(from, to int) Plan {
	p.Steps = slices.Concat(p.Steps[:from], p.Steps[to:])
	return p
}

// with is the plan with another step i.
func (p Plan) with(i int, a Action) Plan {
	p.Steps = slices.Clone(p.Steps)
	p.Steps[i].Do = a
	return p
}
