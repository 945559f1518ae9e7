package sink

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// TopicConfig are the settings of topics that the relay creates.
type TopicConfig []TopicSetting

// TopicSetting is one setting by its name in Kafka.
type TopicSetting struct{ Name, Value string }

var topicSettingName = regexp.MustCompile(`^[a-z][a-z0-9._-]*$`)

// UnmarshalText reads name=value,name=value. A piece without = belongs to the value before it, which may
// be a list: cleanup.policy=compact,delete.
func (c *TopicConfig) UnmarshalText(text []byte) error {
	var all TopicConfig
	seen := make(map[string]bool)
	for piece := range strings.SplitSeq(string(text), ",") {
		name, value, found := strings.Cut(strings.TrimSpace(piece), "=")
		if !found && len(all) > 0 && name != "" {
			all[len(all)-1].Value += "," + name
			continue
		}
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		if !found || value == "" || !topicSettingName.MatchString(name) {
			return fmt.Errorf("%q is not a setting of a topic: write name=value, for instance retention.ms=604800000", strings.TrimSpace(piece))
		}
		if seen[name] {
			return fmt.Errorf("%s is set twice", name)
		}
		seen[name] = true
		all = append(all, TopicSetting{name, value})
	}
	*c = all
	return nil
}

// whole are the settings of Kafka whose values are whole numbers, with the least that makes sense. What a
// broker has beyond Kafka's own is left to it to judge.
var whole = map[string]int64{
	"retention.ms": -1, "retention.bytes": -1, "segment.bytes": 14, "segment.ms": 1, "max.message.bytes": 1, "min.insync.replicas": 1,
	"delete.retention.ms": 0, "min.compaction.lag.ms": 0, "max.compaction.lag.ms": 1, "local.retention.ms": -2, "local.retention.bytes": -2,
}

// validate reports what no broker would take, and what would stop every record.
func (c TopicConfig) validate(replicas int16) []error {
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("KAFKA_TOPIC_CONFIG: "+format, args...))
	}
	for _, s := range c {
		least, numeric := whole[s.Name]
		n, err := strconv.ParseInt(s.Value, 10, 64)
		switch {
		case numeric && err != nil:
			bad("%s: %q is not a whole number", s.Name, s.Value)
		case numeric && n < least:
			bad("%s: %d is out of range: %d and more", s.Name, n, least)
		case s.Name == "min.insync.replicas" && replicas > 0 && n > int64(replicas):
			bad("min.insync.replicas=%d cannot be met by KAFKA_TOPIC_REPLICATION_FACTOR=%d: no record would ever be acknowledged", n, replicas)
		case s.Name == "cleanup.policy":
			for policy := range strings.SplitSeq(s.Value, ",") {
				if policy != "delete" && policy != "compact" {
					bad("cleanup.policy: %q is unknown: use delete, compact or compact,delete", policy)
				}
			}
		}
	}
	return errs
}
