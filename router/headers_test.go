package router

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"walrelay/outbox"
)

func TestHeaders(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"empty", `{}`, ``},
		{"empty with space", " {\n} ", ``},
		{"null", ` null `, ``},
		{"string", `{"traceparent": "00-ab-cd-01"}`, `traceparent="00-ab-cd-01"`},
		{"empty string", `{"a": ""}`, `a=""`},
		{"empty key", `{"": "x"}`, `="x"`},
		{"JSON null", `{"a": null}`, `a=null`},
		{"the string null", `{"a": "null"}`, `a="null"`},
		{"escapes", `{"a": "\"\\\/\b\f\n\r\t"}`, `a="\"\\/\b\f\n\r\t"`},
		{"escape in key", `{"a\"b\u00e9": "x"}`, `a"bé="x"`},
		{"unicode", `{"a": "\u0041\u00e9\u20AC"}`, `a="Aé€"`},
		{"surrogate pair", `{"a": "x\ud83d\ude00y"}`, `a="x😀y"`},
		{"literal UTF-8", `{"größe": "😀"}`, `größe="😀"`},
		{"lone high surrogate", `{"a": "\ud83dx"}`, `a="�x"`},
		{"lone low surrogate", `{"a": "\ude00"}`, `a="�"`},
		{"two high surrogates", `{"a": "\ud83d\ud83d\ude00"}`, `a="�😀"`},
		{"high surrogate and a letter", `{"a": "\ud83d\u0041"}`, `a="�A"`},
		{"escaped NUL", `{"a": "x\u0000"}`, `a="x\x00"`},
		{"not UTF-8", "{\"a\": \"\xff\"}", `a="\xff"`},
		{"numbers", `{"a": 1.10, "b": 9007199254740993, "c": -1E+2}`, `a="1.10" b="9007199254740993" c="-1E+2"`},
		{"literals", `{"a":true,"b":false}`, `a="true" b="false"`},
		{"nested, as it stands", `{"a": { "b" : [1,  "}\"]"] } , "c":[]}`, `a="{ \"b\" : [1,  \"}\\\"]\"] }" c="[]"`},
		{"duplicates are kept", `{"a": "1", "a": "2", "a": null}`, `a="1" a="2" a=null`},
		{"space everywhere", "\t{ \"a\"\r\n:\t\"1\" ,\n\"b\" : 2 } ", `a="1" b="2"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			ev := outbox.Event{Topic: []byte("t"), Headers: []byte(c.text)}
			var rec Record
			if err := newRouter(t, defaults()).Route(&ev, &rec); err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, h := range rec.Headers[1:] { // the first is event_id
				got = append(got, h.Key+"="+quoted(h.Value))
			}
			if s := strings.Join(got, " "); s != c.want {
				t.Errorf("headers %s, want %s", s, c.want)
			}
		})
	}
}

func TestHeadersThatAreNoObject(t *testing.T) {
	secret := "hunter2"
	for _, text := range []string{
		``, ` `, `[]`, `["` + secret + `"]`, `"` + secret + `"`, `1`, `true`, `nul`, `nullx`, `null null`, "\x00", "\xff",
		`{`, `{"a"`, `{"a":`, `{"a":}`, `{"a": 1`, `{"a": 1,`, `{"a": 1,}`, `{,}`, `{"a" 1}`, `{a: 1}`, `{1: 1}`,
		`{"a": 1}x`, `{"a": 1} {}`, `{"a": 1 2}`, `{"a": "` + secret, `{"a": "` + secret + `\`, `{"a": "\x"}`, `{"a": "\u12`, `{"a": "\u12g4"}`,
		"{\"a\": \"\n\"}", `{"a": 01}`, `{"a": 1.}`, `{"a": +1}`, `{"a": nan}`, `{"a": [}`, `{"a": [1,]}`, `{"a": {"b"}}`, `{"a": ["` + secret,
		`{"a": ["\`, `{"a": [1}]}`, `{"a": }`, `{"a": 'x'}`,
	} {
		ev := outbox.Event{Topic: []byte("t"), Headers: []byte(text)}
		var rec Record
		err := newRouter(t, defaults()).Route(&ev, &rec)
		var u *Unroutable
		if !errors.As(err, &u) || !strings.Contains(u.Reason, "headers column") {
			t.Errorf("%q: error %v, want unroutable because of the headers column", text, err)
			continue
		}
		if strings.Contains(u.Reason, secret) {
			t.Errorf("the reason quotes a header: %s", u.Reason)
		}
		if rec.Topic != "" || len(rec.Headers) != 0 || rec.Key != nil {
			t.Errorf("%q: an unroutable event left a record behind: %+v", text, rec)
		}
	}
}

func TestHeadersAreCounted(t *testing.T) {
	r := newRouter(t, defaults())
	for _, c := range []struct {
		entries int
		ok      bool
	}{{maxHeaders, true}, {maxHeaders + 1, false}, {100_000, false}} {
		text := "{" + strings.Repeat(`"":0,`, c.entries-1) + `"":0}`
		ev := outbox.Event{Topic: []byte("t"), Headers: []byte(text)}
		var rec Record
		if err := r.Route(&ev, &rec); (err == nil) != c.ok {
			t.Errorf("%d entries: %v", c.entries, err)
		}
		rec.Reset()
		if cap(rec.Headers) > largestKeptList {
			t.Errorf("%d entries: a list for %d headers is kept", c.entries, cap(rec.Headers))
		}
	}
}

// The limit is the one of encoding/json, and it is one of recursion: text of any depth is safe to read.
func TestHeadersDeep(t *testing.T) {
	r := newRouter(t, defaults())
	for _, depth := range []int{100, maxDepth, maxDepth + 1, 1 << 20} {
		text := `{"a":` + strings.Repeat("[", depth-1) + strings.Repeat("]", depth-1) + `}`
		ev := outbox.Event{Topic: []byte("t"), Headers: []byte(text)}
		err := r.Route(&ev, &Record{})
		if (err == nil) != json.Valid([]byte(text)) || (err == nil) != (depth <= maxDepth) {
			t.Errorf("depth %d: error %v", depth, err)
		}
	}
}
