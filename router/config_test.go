package router

import (
	"errors"
	"strings"
	"testing"

	"github.com/caarlos0/env/v11"
)

func TestConfigDefaults(t *testing.T) {
	cfg := fromEnv(t, nil)
	want := Config{Topic: "{service}.{aggregate}.{event}", Format: "native"}
	if cfg != want {
		t.Fatalf("defaults are %+v, want %+v", cfg, want)
	}
	if errs := cfg.Validate(); len(errs) != 0 {
		t.Fatalf("the defaults are refused: %v", errors.Join(errs...))
	}
}

func TestValidate(t *testing.T) {
	long := strings.Repeat("x", 250)
	for _, c := range []struct {
		name string
		env  map[string]string
		want []string // one part of each error, in order
	}{
		{"fixed topic", map[string]string{"ROUTER_TOPIC": "outbox.events"}, nil},
		{"verbatim", map[string]string{"ROUTER_TOPIC": "{aggregate_type}_{event_type}"}, nil},
		{"map", map[string]string{"ROUTER_TOPIC_MAP": " order = orders.events , user=users.events, Order.OrderCreated=new-orders,"}, nil},
		{"service", map[string]string{"ROUTER_SERVICE": "Shop_1.eu"}, nil},

		{"unknown placeholder", map[string]string{"ROUTER_TOPIC": "{service}.{topic}"}, []string{"ROUTER_TOPIC: unknown placeholder {topic}: use {service}"}},
		{"empty placeholder", map[string]string{"ROUTER_TOPIC": "{}"}, []string{"unknown placeholder {}"}},
		{"spelling", map[string]string{"ROUTER_TOPIC": "{Aggregate}"}, []string{"unknown placeholder {Aggregate}"}},
		{"no end", map[string]string{"ROUTER_TOPIC": "{service}.{event"}, []string{"ROUTER_TOPIC: unbalanced braces"}},
		{"no start", map[string]string{"ROUTER_TOPIC": "service}"}, []string{"ROUTER_TOPIC: unbalanced braces"}},
		{"nested", map[string]string{"ROUTER_TOPIC": "{{service}}"}, []string{"ROUTER_TOPIC: unbalanced braces"}},
		{"illegal literal", map[string]string{"ROUTER_TOPIC": "{service}/{event}"}, []string{`ROUTER_TOPIC: "{service}/{event}" holds '/'`}},
		{"blank", map[string]string{"ROUTER_TOPIC": "{service} {event}"}, []string{"holds ' '"}},
		{"only a dot", map[string]string{"ROUTER_TOPIC": "."}, []string{`ROUTER_TOPIC: "." is a name that Kafka refuses`}},
		{"only dots", map[string]string{"ROUTER_TOPIC": ".."}, []string{"ROUTER_TOPIC"}},
		{"too long", map[string]string{"ROUTER_TOPIC": long}, []string{"ROUTER_TOPIC gives topic names of at least 250 bytes"}},
		{"too long with a part", map[string]string{"ROUTER_TOPIC": long[1:] + "{event}"}, []string{"at least 250 bytes"}},
		{"just fits", map[string]string{"ROUTER_TOPIC": long[2:] + "{event}"}, nil},

		{"illegal service", map[string]string{"ROUTER_SERVICE": "my shop"}, []string{`ROUTER_SERVICE: "my shop" holds ' '`}},
		{"long service", map[string]string{"ROUTER_SERVICE": long}, []string{"ROUTER_SERVICE: the name is 250 bytes"}},
		{"service leaves no room", map[string]string{"ROUTER_SERVICE": long[4:]}, []string{"ROUTER_SERVICE"}},
		{"service leaves just room", map[string]string{"ROUTER_SERVICE": long[5:]}, nil},
		{"service of dots", map[string]string{"ROUTER_SERVICE": "..", "ROUTER_TOPIC": "{service}"}, []string{`gives "..", which is a name that Kafka refuses`}},

		{"map without =", map[string]string{"ROUTER_TOPIC_MAP": "order"}, []string{`ROUTER_TOPIC_MAP: entry "order" has no '='`}},
		{"map without key", map[string]string{"ROUTER_TOPIC_MAP": "=orders"}, []string{`key "" is neither`}},
		{"map key of dots", map[string]string{"ROUTER_TOPIC_MAP": "..=a,order.=b,.created=c"}, []string{`key ".."`, `key "order."`, `key ".created"`}},
		{"map topic", map[string]string{"ROUTER_TOPIC_MAP": "order=a b,user=,line=" + long + ",x=.."}, []string{`topic "a b" holds ' '`, `topic "" is empty`, "is 250 bytes long", `topic ".." is`}},
		{"map twice", map[string]string{"ROUTER_TOPIC_MAP": "OrderLine=a,order_line=b"}, []string{`"OrderLine=a" and "order_line=b" are the same key "order-line"`}},
		{"map event twice", map[string]string{"ROUTER_TOPIC_MAP": "order.OrderCreated.v1=a,Order.created=a"}, []string{`the same key "order.created"`}},

		{"format", map[string]string{"ROUTER_FORMAT": "debezium"}, []string{`ROUTER_FORMAT: unknown format "debezium": write native`}},
		{
			"all at once",
			map[string]string{"ROUTER_SERVICE": "é", "ROUTER_TOPIC": "{x}", "ROUTER_TOPIC_MAP": "a", "ROUTER_FORMAT": "x"},
			[]string{"ROUTER_SERVICE", "ROUTER_TOPIC:", "ROUTER_TOPIC_MAP", "ROUTER_FORMAT"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := fromEnv(t, c.env)
			errs := cfg.Validate()
			if len(errs) != len(c.want) {
				t.Fatalf("%d errors, want %d: %v", len(errs), len(c.want), errors.Join(errs...))
			}
			for i, err := range errs {
				if !strings.Contains(err.Error(), c.want[i]) {
					t.Errorf("error %q does not say %q", err, c.want[i])
				}
			}
			if _, err := New(cfg, "shop"); (err != nil) != (len(errs) > 0) {
				t.Errorf("New says %v, Validate %v", err, errs)
			}
		})
	}
}

// The template is not Validate's alone to judge: without ROUTER_SERVICE the database's name is part of it.
func TestNewWithoutService(t *testing.T) {
	for _, c := range []struct{ template, database, want string }{
		{"{service}.{aggregate}.{event}", "OrderService", ""},
		{"{service}", "größe", `ROUTER_SERVICE is empty, and the name of database "größe" cannot stand in for it`},
		{"{service}", "", "ROUTER_SERVICE"},
		{"{service}", "-", "ROUTER_SERVICE"},
		{"events", "größe", ""},
	} {
		_, err := New(Config{Topic: c.template, Format: "native"}, c.database)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("database %q, topic %s: %v, want %q", c.database, c.template, err, c.want)
		}
	}
}

func fromEnv(t *testing.T, vars map[string]string) Config {
	t.Helper()
	if vars == nil {
		vars = map[string]string{}
	}
	cfg, err := env.ParseAsWithOptions[Config](env.Options{Environment: vars})
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}
