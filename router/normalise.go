package router

import (
	"strings"
	"unicode"
)

// kebab is s in lower kebab case: OrderCreated, order_created, order.created and "ORDER CREATED" are all
// order-created.
//
// A word ends at a separator (any of - _ . / : \ and space), before an upper-case letter that follows a
// lower-case letter or a digit, and before the last of several upper-case letters when a lower-case one
// follows (HTTPServerStarted is http-server-started). Digits stay with the word they follow. Every other
// character stays as it is: whether a topic may hold it is asked later, so that ROUTER_TOPIC_MAP can
// still name a type that no topic could.
//
// Dots become hyphens like other separators. In a topic name they separate its parts, and each placeholder is to
// be one part: `line.added` of Order and `added` of order.line would share a topic otherwise. A writer who wants
// its dots in the topic uses {event_type} or the row's own topic.
func kebab(s string) string {
	var b strings.Builder
	b.Grow(len(s) + 8)
	runes := []rune(s)
	separated := false
	for i, c := range runes {
		if isSeparator(c) {
			separated = true
			continue
		}
		if b.Len() > 0 && (separated || startsWord(runes, i)) {
			b.WriteByte('-')
		}
		separated = false
		b.WriteRune(lower(c))
	}
	return b.String()
}

func isSeparator(c rune) bool {
	switch c {
	case '-', '_', '.', '/', ':', '\\', ' ':
		return true
	}
	return false
}

func startsWord(runes []rune, i int) bool {
	if i == 0 || !unicode.IsUpper(runes[i]) {
		return false
	}
	if before := runes[i-1]; unicode.IsLower(before) || unicode.IsDigit(before) {
		return true
	}
	return unicode.IsUpper(runes[i-1]) && i+1 < len(runes) && unicode.IsLower(runes[i+1])
}

// lower never turns a letter that is illegal in a topic into a legal one: the Kelvin sign stays what it is.
func lower(c rune) rune {
	l := unicode.ToLower(c)
	if c > unicode.MaxASCII && l <= unicode.MaxASCII {
		return c
	}
	return l
}

// kebabEvent is the event type in lower kebab case, without the name of its aggregate (normalised) in
// front and without a version `.v<number>` behind. When nothing would be left it is kept whole: `Order`
// of aggregate Order is order.
//
// The aggregate's name goes only where it ends at the end of a word: OrderlineAdded of Order keeps it.
func kebabEvent(aggregate, eventType string) string {
	rest := kebab(withoutVersion(eventType))
	if rest == aggregate {
		rest = ""
	} else if aggregate != "" {
		rest = strings.TrimPrefix(rest, aggregate+"-")
	}
	if rest == "" {
		return kebab(eventType)
	}
	return rest
}

func withoutVersion(eventType string) string {
	dot := strings.LastIndexByte(eventType, '.')
	if dot < 0 {
		return eventType
	}
	version := eventType[dot+1:]
	if len(version) < 2 || version[0] != 'v' && version[0] != 'V' {
		return eventType
	}
	if strings.Trim(version[1:], "0123456789") != "" {
		return eventType
	}
	return eventType[:dot]
}
