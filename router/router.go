// Package router decides what an outbox event looks like on Kafka: topic, key, value and headers.
//
// It is pure: no I/O, no clock, no goroutine, no logger. The same event and the same configuration
// always give the same record.
package router

import (
	"errors"
	"fmt"

	"walrelay/outbox"
)

// Unroutable says that an event cannot become a record, however often it is tried with this
// configuration. Reason names the part of the row that is wrong, and quotes no payload or header value.
type Unroutable struct{ Reason string }

func (u *Unroutable) Error() string { return "unroutable: " + u.Reason }

func unroutable(format string, args ...any) error {
	return &Unroutable{Reason: fmt.Sprintf(format, args...)}
}

// Event types come from outside, so what is remembered of them is bounded twice, by number and by
// length: at most 4,096 topics under names of at most 512 bytes, about 3 MB.
const (
	maxTopics    = 4096
	maxTopicName = 512
)

// Router turns events into records. It remembers the topics it has worked out, and is therefore used
// by one goroutine at a time.
type Router struct {
	template template
	byEvent  topicMap
	topics   map[topicKey]string // legal topics only; emptied when full
}

// topicKey is what a topic depends on: the row's own topic, or else the two types.
type topicKey struct{ own, aggregate, event string }

// New makes a Router. The database's name is the service's name where ROUTER_SERVICE is empty. The error
// joins everything that Validate finds.
func New(cfg Config, database string) (*Router, error) {
	if errs := cfg.Validate(); len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	tmpl, err := parseTemplate(cfg.Topic)
	if err != nil {
		return nil, err
	}
	service := cfg.Service
	if service == "" {
		service = kebab(database)
	}
	if err := tmpl.setService(service); err != nil {
		if cfg.Service == "" {
			err = fmt.Errorf("ROUTER_SERVICE is empty, and the name of database %q cannot stand in for it: %w", database, err)
		}
		return nil, err
	}
	byEvent, _ := parseTopicMap(cfg.TopicMap)
	return &Router{template: tmpl, byEvent: byEvent, topics: make(map[topicKey]string)}, nil
}

// Route writes the record of ev into rec, which it resets first. The error is an *Unroutable, and rec is
// then empty.
//
// The record, in Kafka's native format:
//
//   - Topic: the row's own topic; else the entry of ROUTER_TOPIC_MAP for its aggregate and event, else for
//     its aggregate; else ROUTER_TOPIC. A row's own topic is NULL when it has none; an empty one is an
//     illegal name like any other.
//   - Key: the partition key, else the aggregate id; nil only where both are NULL. An empty partition key
//     is an empty key.
//   - Value: the payload's bytes as PostgreSQL holds them; nil, a tombstone, where the payload is NULL.
//   - Headers: event_id, event_type, aggregate_type, aggregate_id, created_at (RFC 3339, UTC, as many
//     fractional digits as its microseconds need), position (timeline/LSN/ordinal; only for an event that
//     comes from the stream), each absent where the row has NULL there; then every entry of the headers
//     column, see readHeaders. A header of the writer's may carry one of these names: both are kept, ours
//     first, so a consumer that wants ours takes the first of that name and not the last.
//
// Nothing in rec aliases ev. Once rec's buffer has grown to the size of the service's events, and its
// topics are known, a call allocates nothing.
func (r *Router) Route(ev *outbox.Event, rec *Record) error {
	rec.Reset()
	topic, err := r.topic(ev)
	if err != nil {
		return err
	}
	rec.reserve(ev)
	rec.addFixedHeaders(ev)
	if err := rec.readHeaders(ev.Headers); err != nil {
		rec.Reset()
		return err
	}
	rec.Topic = topic
	rec.Value = rec.copied(ev.Payload)
	return nil
}

// topic finds the event's topic among those worked out before, or works it out.
func (r *Router) topic(ev *outbox.Event) (string, error) {
	if ev.Topic != nil {
		if topic, ok := r.topics[topicKey{own: string(ev.Topic)}]; ok {
			return topic, nil
		}
		own := string(ev.Topic)
		if fault := topicFault(own); fault != "" {
			return "", unroutable("topic %s of the row %s: write a legal topic name, or NULL to let ROUTER_TOPIC decide", clip(own), fault)
		}
		r.remember(topicKey{own: own}, own)
		return own, nil
	}
	if topic, ok := r.topics[topicKey{aggregate: string(ev.AggregateType), event: string(ev.EventType)}]; ok {
		return topic, nil
	}
	topic, err := r.workOut(ev)
	if err != nil {
		return "", err
	}
	r.remember(topicKey{aggregate: string(ev.AggregateType), event: string(ev.EventType)}, topic)
	return topic, nil
}

// workOut is the map, then the template. It allocates; topic remembers its result.
func (r *Router) workOut(ev *outbox.Event) (string, error) {
	aggregate := kebab(string(ev.AggregateType))
	event := kebabEvent(aggregate, string(ev.EventType))
	if topic, ok := r.byEvent[mapKey{aggregate, event}]; ok {
		return topic, nil
	}
	if topic, ok := r.byEvent[mapKey{aggregate, ""}]; ok {
		return topic, nil
	}
	return r.template.render(ev, aggregate, event)
}

func (r *Router) remember(key topicKey, topic string) {
	if len(key.aggregate)+len(key.event) > maxTopicName {
		return
	}
	// Emptied, not evicted one by one: a service has a few dozen event types, and one that has thousands
	// pays a little for each and needs no bookkeeping per event.
	if len(r.topics) >= maxTopics {
		clear(r.topics)
	}
	r.topics[key] = topic
}
