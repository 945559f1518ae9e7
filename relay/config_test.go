package relay

import (
	"errors"
	"strings"
	"testing"
	"time"

	"walrelay/checkpoint"
)

func TestConfigNamesEveryVariable(t *testing.T) {
	good := Config{Mode: WAL, AfterPublish: "mark", MemoryLimit: 64 << 20, ShutdownTimeout: time.Second}
	if errs := good.Validate(); len(errs) > 0 {
		t.Errorf("a good one: %v", errs)
	}
	bad := Config{Mode: "auto", AfterPublish: "drop", MemoryLimit: 1, ShutdownTimeout: time.Hour}
	if errs := bad.Validate(); len(errs) != 4 {
		t.Errorf("%d problems, want 4: %v", len(errs), errs)
	}
}

func TestPollingCannotKeep(t *testing.T) {
	c := Config{Mode: Polling, AfterPublish: "keep", MemoryLimit: 64 << 20}
	if errs := c.Validate(); len(errs) != 1 || !strings.Contains(errs[0].Error(), "RELAY_AFTER_PUBLISH=keep") {
		t.Errorf("keep: %v", errs)
	}
}

func TestRetentionNeedsMarks(t *testing.T) {
	for _, c := range []struct {
		after checkpoint.AfterPublish
		keep  time.Duration
		want  string
	}{
		{"mark", 0, ""}, {"mark", time.Hour, ""}, {"keep", 0, ""},
		{"mark", time.Minute, "1h and more"}, {"delete", time.Hour, "mark alone"}, {"keep", time.Hour, "mark alone"},
	} {
		errs := Config{Mode: WAL, AfterPublish: c.after, Retention: c.keep, MemoryLimit: 64 << 20}.Validate()
		if got := errors.Join(errs...); (got == nil) != (c.want == "") || got != nil && !strings.Contains(got.Error(), c.want) {
			t.Errorf("%s, %v: %v", c.after, c.keep, got)
		}
	}
}
