package postgres

import (
	"strings"
	"testing"
)

// Nobody's own variables and parameters reach the settings that decide how values are printed.
func TestPinnedSettingsAreSentOnce(t *testing.T) {
	t.Setenv("PGTZ", "Asia/Tokyo")
	t.Setenv("PGAPPNAME", "other")
	cfg, err := ParseDatabase("postgres://relay@db/shop?DateStyle=German&ExtraFloatDigits=0&search_path=a", nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range pinned {
		var sent []string
		for k, v := range cfg.RuntimeParams {
			if strings.EqualFold(k, name) {
				sent = append(sent, v)
			}
		}
		if len(sent) != 1 || sent[0] != want {
			t.Errorf("%s is sent as %q, want %q", name, sent, want)
		}
	}
	if cfg.RuntimeParams["search_path"] != "a" {
		t.Error("a parameter that is not pinned is lost")
	}
}
