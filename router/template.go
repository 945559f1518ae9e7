package router

import (
	"errors"
	"fmt"
	"strings"

	"walrelay/outbox"
)

// placeholder is what stands between braces in ROUTER_TOPIC; literal is the text around them.
type placeholder string

const (
	literal            placeholder = ""
	placeService       placeholder = "service"
	placeAggregate     placeholder = "aggregate"
	placeEvent         placeholder = "event"
	placeAggregateType placeholder = "aggregate_type"
	placeEventType     placeholder = "event_type"
)

// template is a parsed ROUTER_TOPIC, in order. Its literals hold only what a topic may hold.
type template []part

type part struct {
	name placeholder
	text string // of a literal, and of {service} once it is known
}

// parseTemplate reads ROUTER_TOPIC and refuses what can never give a legal topic.
func parseTemplate(s string) (template, error) {
	if s == "" {
		return nil, errors.New("ROUTER_TOPIC is empty: write for example {service}.{aggregate}.{event}")
	}
	var t template
	for rest := s; rest != ""; {
		open := strings.IndexAny(rest, "{}")
		if open < 0 {
			open = len(rest)
		}
		if open > 0 {
			t = append(t, part{literal, rest[:open]})
			rest = rest[open:]
			continue
		}
		inside, after, closed := strings.Cut(rest[1:], "}")
		if rest[0] == '}' || !closed || strings.Contains(inside, "{") {
			return nil, fmt.Errorf("ROUTER_TOPIC: unbalanced braces in %s: write each placeholder as {name}", clip(s))
		}
		name := placeholder(inside)
		switch name {
		case placeService, placeAggregate, placeEvent, placeAggregateType, placeEventType:
		default:
			return nil, fmt.Errorf("ROUTER_TOPIC: unknown placeholder {%s}: use {service}, {aggregate}, {event}, {aggregate_type} or {event_type}", inside)
		}
		t = append(t, part{name: name})
		rest = after
	}
	return t, t.check(s)
}

// check refuses a template of which no event can make a legal topic.
func (t template) check(s string) error {
	shortest, fixed := 0, true
	for _, p := range t {
		if p.name != literal {
			fixed = false
			shortest++ // no placeholder is ever empty
			continue
		}
		if c, found := illegal(p.text); found {
			return fmt.Errorf("ROUTER_TOPIC: %s %s", clip(s), holds(c))
		}
		shortest += len(p.text)
	}
	if shortest > maxTopicLength {
		return fmt.Errorf("ROUTER_TOPIC gives topic names of at least %d bytes, %d at most: write a shorter one", shortest, maxTopicLength)
	}
	if fault := topicFault(s); fixed && fault != "" {
		return fmt.Errorf("ROUTER_TOPIC: %s %s: write another name", clip(s), fault)
	}
	return nil
}

// setService fills {service} in, where the template has it.
func (t template) setService(name string) error {
	for i := range t {
		if t[i].name != placeService {
			continue
		}
		if err := checkService(name); err != nil {
			return err
		}
		t[i].text = name
	}
	shortest, fixed := "", true
	for _, p := range t {
		if p.text == "" {
			fixed = false
			p.text = "x" // the shortest value of a placeholder
		}
		shortest += p.text
	}
	if len(shortest) > maxTopicLength {
		return fmt.Errorf("ROUTER_SERVICE: with the name %s, ROUTER_TOPIC gives topic names of at least %d bytes, %d at most: write a shorter one", clip(name), len(shortest), maxTopicLength)
	}
	if fault := topicFault(shortest); fixed && fault != "" {
		return fmt.Errorf("ROUTER_SERVICE: with the name %s, ROUTER_TOPIC gives %q, which %s: write another name", clip(name), shortest, fault)
	}
	return nil
}

// render is the topic of ev, whose normalised types are aggregate and event.
func (t template) render(ev *outbox.Event, aggregate, event string) (string, error) {
	var b strings.Builder
	longest := part{}
	for _, p := range t {
		value := p.text
		var err error
		switch p.name {
		case placeAggregate:
			value, err = fill(p.name, aggregate, "aggregate type", ev.AggregateType)
		case placeAggregateType:
			value, err = fill(p.name, string(ev.AggregateType), "aggregate type", ev.AggregateType)
		case placeEvent:
			value, err = fill(p.name, event, "event type", ev.EventType)
		case placeEventType:
			value, err = fill(p.name, string(ev.EventType), "event type", ev.EventType)
		}
		if err != nil {
			return "", err
		}
		if p.name != literal && len(value) >= len(longest.text) {
			longest = part{p.name, value}
		}
		b.WriteString(value)
	}
	topic := b.String()
	// Each part is legal by now, so only the whole can be wrong: too long, or "." or "..".
	if fault := topicFault(topic); fault != "" {
		return "", unroutable("topic name from ROUTER_TOPIC %s: {%s} is %s", fault, longest.name, clip(longest.text))
	}
	return topic, nil
}

// fill checks the value of one placeholder; column and raw are the row's, for the reason.
func fill(name placeholder, value, column string, raw []byte) (string, error) {
	const remedy = "write the row's topic, or change the type"
	switch {
	case raw == nil:
		return "", unroutable("%s is NULL, and ROUTER_TOPIC needs it for {%s}: %s", column, name, remedy)
	case value == "":
		return "", unroutable("%s %s leaves nothing for {%s} in ROUTER_TOPIC: %s", column, clip(string(raw)), name, remedy)
	}
	if c, found := illegal(value); found {
		return "", unroutable("%s %s %s: %s, or name it in ROUTER_TOPIC_MAP", column, clip(string(raw)), holds(c), remedy)
	}
	return value, nil
}
