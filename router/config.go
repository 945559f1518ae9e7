package router

import (
	"fmt"
	"strings"
)

// Config says where events go. Validate knows everything that can be wrong with it but the name of the
// database, which New is told.
type Config struct {
	Service  string `env:"ROUTER_SERVICE" doc:"{service} in topic names; the database's name in lower kebab case where empty."`
	Topic    string `env:"ROUTER_TOPIC" envDefault:"{service}.{aggregate}.{event}" doc:"Topic of an event: text with {service}, {aggregate}, {event} (lower kebab case; the event without its aggregate's name and without .v<number>), {aggregate_type}, {event_type} (both as written)."`
	TopicMap string `env:"ROUTER_TOPIC_MAP" doc:"Topics that differ from ROUTER_TOPIC, as order=orders.events,user.created=signups; aggregate.event goes before aggregate."`
	Format   string `env:"ROUTER_FORMAT" envDefault:"native" doc:"Shape of the records: native."`
}

// Validate finds every problem at once; each error begins with the name of its variable.
func (c *Config) Validate() []error {
	var errs []error
	if c.Service != "" {
		if err := checkService(c.Service); err != nil {
			errs = append(errs, err)
		}
	}
	tmpl, err := parseTemplate(c.Topic)
	if err != nil {
		errs = append(errs, err)
	}
	if len(errs) == 0 && c.Service != "" {
		if err := tmpl.setService(c.Service); err != nil {
			errs = append(errs, err)
		}
	}
	_, mapErrs := parseTopicMap(c.TopicMap)
	errs = append(errs, mapErrs...)
	if c.Format != "native" {
		errs = append(errs, fmt.Errorf("ROUTER_FORMAT: unknown format %s: write native", clip(c.Format)))
	}
	return errs
}

// checkService refuses a name that cannot be part of a topic.
func checkService(name string) error {
	c, found := illegal(name)
	switch {
	case name == "":
		return fmt.Errorf("ROUTER_SERVICE: the name is empty: write for example ROUTER_SERVICE=shop")
	case found:
		return fmt.Errorf("ROUTER_SERVICE: %s %s: write for example ROUTER_SERVICE=shop", clip(name), holds(c))
	case len(name) > maxTopicLength:
		return fmt.Errorf("ROUTER_SERVICE: the name is %d bytes long, and a topic name %d at most: write a shorter one", len(name), maxTopicLength)
	}
	return nil
}

// topicMap is ROUTER_TOPIC_MAP with normalised keys and legal topics.
type topicMap map[mapKey]string

// mapKey names an event of an aggregate, or all events of an aggregate where event is empty.
type mapKey struct{ aggregate, event string }

func (k mapKey) String() string {
	if k.event == "" {
		return k.aggregate
	}
	return k.aggregate + "." + k.event
}

// parseTopicMap reads key=topic entries, separated by commas. The first dot of a key ends the aggregate, so
// the dots of an aggregate's own name are written as hyphens there. Both halves go through the same
// normalisation as the row's, and may therefore be copied from it.
func parseTopicMap(s string) (topicMap, []error) {
	var errs []error
	topics := make(topicMap)
	written := make(map[mapKey]string)
	for entry := range strings.SplitSeq(s, ",") {
		entry = strings.TrimSpace(entry)
		if entry == "" {
			continue
		}
		left, topic, found := strings.Cut(entry, "=")
		left, topic = strings.TrimSpace(left), strings.TrimSpace(topic)
		if !found {
			errs = append(errs, fmt.Errorf("ROUTER_TOPIC_MAP: entry %s has no '=': write aggregate=topic or aggregate.event=topic", clip(entry)))
			continue
		}
		key, ok := parseMapKey(left)
		if !ok {
			errs = append(errs, fmt.Errorf("ROUTER_TOPIC_MAP: entry %s: key %s is neither an aggregate nor aggregate.event", clip(entry), clip(left)))
			continue
		}
		if fault := topicFault(topic); fault != "" {
			errs = append(errs, fmt.Errorf("ROUTER_TOPIC_MAP: entry %s: topic %s %s: write another name", clip(entry), clip(topic), fault))
			continue
		}
		if first, twice := written[key]; twice {
			errs = append(errs, fmt.Errorf("ROUTER_TOPIC_MAP: %s and %s are the same key %s: keep one of them", clip(first), clip(entry), clip(key.String())))
			continue
		}
		topics[key], written[key] = topic, entry
	}
	return topics, errs
}

func parseMapKey(s string) (mapKey, bool) {
	left, right, dotted := strings.Cut(s, ".")
	key := mapKey{aggregate: kebab(left)}
	if dotted {
		key.event = kebabEvent(key.aggregate, right)
	}
	return key, key.aggregate != "" && dotted == (key.event != "")
}
