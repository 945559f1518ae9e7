package router

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"time"
	"unicode/utf8"

	"walrelay/outbox"
)

// FuzzRoute: no input makes Route panic, only legal topics leave, and nothing in a record is the event's.
func FuzzRoute(f *testing.F) {
	f.Add("Order", "4711", "order.created.v1", "", "", []byte(`{"n": 1}`), []byte(`{"traceparent": "00-\ud83d\ude00", "a": [1, {"b": null}], "c": null}`), int64(1_790_000_000_123_456), int32(1), uint8(0b0110_0000))
	f.Add("Größe", "", "..", "p", "a/b", []byte{}, []byte(`{"a": "\ud800"}`), int64(-1), int32(0), uint8(0))
	f.Add("HTTPServer", "1", "", "", "..", []byte(nil), []byte(`[]`), int64(0), int32(-1), uint8(0xff))
	f.Fuzz(func(t *testing.T, aggregate, id, event, partition, topic string, payload, headers []byte, created int64, timeline int32, nulls uint8) {
		ev := outbox.Event{
			ID:            outbox.EventID{1, 2, 3},
			AggregateType: []byte(aggregate), AggregateID: []byte(id), EventType: []byte(event),
			PartitionKey: []byte(partition), Topic: []byte(topic),
			Payload: append([]byte{}, payload...), Headers: append([]byte{}, headers...),
			CreatedAt: time.UnixMicro(created),
			Position:  outbox.Position{Timeline: timeline, LSN: 42, Ordinal: 7},
		}
		columns := []*[]byte{&ev.AggregateType, &ev.AggregateID, &ev.EventType, &ev.PartitionKey, &ev.Topic, &ev.Payload, &ev.Headers}
		for i, column := range columns {
			if nulls&(1<<i) != 0 {
				*column = nil
			}
		}
		for _, cfg := range []Config{
			defaults(),
			{Service: ".", Topic: "{service}{event_type}", TopicMap: "order.created=new,größe=sizes", Format: "native"},
			{Topic: "{aggregate_type}", Format: "native"},
		} {
			r := newRouter(t, cfg)
			var rec Record
			if !routeChecked(t, r, &ev, &rec) {
				continue
			}
			before := clone(&rec)
			saved := make([][]byte, len(columns))
			for i, column := range columns {
				saved[i] = bytes.Clone(*column)
				for j := range *column {
					(*column)[j] ^= 0x55
				}
			}
			if !equal(&rec, before) {
				t.Fatalf("the record changed with the event:\n%s\n%s", printed(&rec), printed(before))
			}
			for i, column := range columns {
				copy(*column, saved[i])
			}
			// The second time from the cache and into a used record.
			if !routeChecked(t, r, &ev, &rec) || !equal(&rec, before) {
				t.Fatalf("routed again it is another record:\n%s\n%s", printed(&rec), printed(before))
			}
			if rec.Value == nil != (ev.Payload == nil) || !bytes.Equal(rec.Value, ev.Payload) {
				t.Fatalf("value %q of payload %q", rec.Value, ev.Payload)
			}
			if rec.Key == nil != (ev.PartitionKey == nil && ev.AggregateID == nil) {
				t.Fatalf("key %q of %q and %q", rec.Key, ev.PartitionKey, ev.AggregateID)
			}
		}
	})
}

func routeChecked(t *testing.T, r *Router, ev *outbox.Event, rec *Record) bool {
	t.Helper()
	err := r.Route(ev, rec)
	var u *Unroutable
	switch {
	case err != nil && (!errors.As(err, &u) || u.Reason == "" || rec.Topic != ""):
		t.Fatalf("error %v, topic %q", err, rec.Topic)
	case err == nil && !legalByTheBook(rec.Topic):
		t.Fatalf("illegal topic %q", rec.Topic)
	}
	return err == nil
}

// legalByTheBook is Kafka's rule once more, in other words than the code's.
func legalByTheBook(topic string) bool {
	const alphabet = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"
	return len(topic) >= 1 && len(topic) <= 249 && topic != "." && topic != ".." &&
		len(bytes.Trim([]byte(topic), alphabet)) == 0
}

// FuzzHeaders compares with encoding/json, which reads the same entries in the same order.
func FuzzHeaders(f *testing.F) {
	for _, seed := range []string{
		`{}`, `null`, `[]`, `{"a": "x", "a": 1.10, "b": null, "": {"c": [true, "}"]}}`,
		`{"a": "\ud83d\ude00\ud83d\u0041\ude00\u0000\"\\\/\b\f\n\r\t"}`, ` { "a" : -1e5 , "b":"" } `,
		`{"a":01}`, `{"a":[}`, `{"a":"\u12`, "{\"a\":\"\xff\"}", `{"a":1}{`, `{"a":"b",}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var rec Record
		ev := outbox.Event{Topic: []byte("t"), Headers: append([]byte{}, text...)}
		err := newRouter(t, defaults()).Route(&ev, &rec)
		want, ok := entriesByEncodingJSON(text)
		if ok && len(want) > maxHeaders {
			ok = false
		}
		if (err == nil) != ok {
			t.Fatalf("%q: error %v, encoding/json says %v", text, err, ok)
		}
		if err != nil || !utf8.Valid(text) { // encoding/json replaces what is not UTF-8, we keep it
			return
		}
		got := rec.Headers[1:]
		if !slices.EqualFunc(got, want, sameHeader) {
			t.Fatalf("%q: headers\n%q, encoding/json says\n%q", text, got, want)
		}
	})
}

func entriesByEncodingJSON(text []byte) (entries []Header, ok bool) {
	if !json.Valid(text) {
		return nil, false
	}
	if string(bytes.TrimSpace(text)) == "null" {
		return nil, true
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	if start, err := dec.Token(); err != nil || start != json.Delim('{') {
		return nil, false
	}
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return nil, false
		}
		var raw json.RawMessage
		if err := dec.Decode(&raw); err != nil {
			return nil, false
		}
		h := Header{Key: key.(string), Value: raw}
		switch {
		case string(raw) == "null":
			h.Value = nil
		case raw[0] == '"':
			var s string
			if err := json.Unmarshal(raw, &s); err != nil {
				return nil, false
			}
			h.Value = []byte(s)
		}
		entries = append(entries, h)
	}
	return entries, true
}

// clone copies a record, header keys included.
func clone(rec *Record) *Record {
	c := &Record{Topic: string([]byte(rec.Topic)), Key: bytes.Clone(rec.Key), Value: bytes.Clone(rec.Value)}
	for _, h := range rec.Headers {
		c.Headers = append(c.Headers, Header{string([]byte(h.Key)), bytes.Clone(h.Value)})
	}
	return c
}

func equal(a, b *Record) bool {
	return a.Topic == b.Topic && bytes.Equal(a.Key, b.Key) && bytes.Equal(a.Value, b.Value) &&
		slices.EqualFunc(a.Headers, b.Headers, sameHeader)
}

func sameHeader(a, b Header) bool {
	return a.Key == b.Key && bytes.Equal(a.Value, b.Value) && (a.Value == nil) == (b.Value == nil)
}
