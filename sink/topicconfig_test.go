package sink

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

func TestTopicConfigIsReadAndChecked(t *testing.T) {
	for text, want := range map[string]TopicConfig{
		"retention.ms=1000": {{"retention.ms", "1000"}},
		" retention.ms = 1000 , cleanup.policy=compact,delete,min.insync.replicas=2": {{"retention.ms", "1000"}, {"cleanup.policy", "compact,delete"}, {"min.insync.replicas", "2"}},
		"redpanda.remote.read=true": {{"redpanda.remote.read", "true"}},
		"retention.ms=-1":           {{"retention.ms", "-1"}},
	} {
		var c TopicConfig
		if err := errors.Join(append(c.validate(-1), c.UnmarshalText([]byte(text)))...); err != nil || !slices.Equal(c, want) {
			t.Errorf("%q: %v, %v", text, c, err)
		}
		if errs := c.validate(3); len(errs) > 0 {
			t.Errorf("%q: %v", text, errs)
		}
	}
	for text, want := range map[string]string{
		"compact":                              `"compact" is not a setting of a topic`,
		"retention.ms":                         "is not a setting",
		"retention.ms=":                        "is not a setting",
		"=1":                                   "is not a setting",
		"Retention=1":                          "is not a setting",
		"retention.ms=1,,":                     "is not a setting",
		"retention.ms=1,retention.ms=2":        "retention.ms is set twice",
		"retention.ms=7d":                      `retention.ms: "7d" is not a whole number`,
		"retention.ms=-2":                      "retention.ms: -2 is out of range",
		"cleanup.policy=compress":              `cleanup.policy: "compress" is unknown`,
		"cleanup.policy=compact,retention":     `cleanup.policy: "retention" is unknown`,
		"min.insync.replicas=3,retention.ms=1": "cannot be met by KAFKA_TOPIC_REPLICATION_FACTOR=2",
	} {
		var c TopicConfig
		err := c.UnmarshalText([]byte(text))
		if err == nil {
			err = errors.Join(c.validate(2)...)
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}
