package router

import (
	"fmt"
	"unicode/utf8"
)

// maxTopicLength is Kafka's limit, in bytes; together with the alphabet and the names "." and ".." it
// is what org.apache.kafka.common.internals.Topic accepts.
const maxTopicLength = 249

// topicFault says what is wrong with s as a topic name, as the end of a sentence that begins with the
// name; "" means that it is legal.
func topicFault(s string) string {
	switch {
	case s == "":
		return "is empty"
	case s == "." || s == "..":
		return "is a name that Kafka refuses"
	case len(s) > maxTopicLength:
		return fmt.Sprintf("is %d bytes long, %d at most", len(s), maxTopicLength)
	}
	if c, found := illegal(s); found {
		return holds(c)
	}
	return ""
}

// holds is the fault of a name with the illegal character c.
func holds(c rune) string {
	return fmt.Sprintf("holds %q, and a topic name holds only letters a-z and A-Z, digits, '.', '_' and '-'", c)
}

// illegal is the first character of s that no topic name may hold.
func illegal(s string) (c rune, found bool) {
	for _, c := range s {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case c == '.', c == '_', c == '-':
		default:
			return c, true
		}
	}
	return 0, false
}

// clip quotes s for a message, at most 64 bytes of it: reasons are logged and kept in a table, and a type
// may be as long as its writer likes.
func clip(s string) string {
	const most = 64
	if len(s) <= most {
		return fmt.Sprintf("%q", s)
	}
	end := most
	for end > most-utf8.UTFMax && !utf8.RuneStart(s[end]) {
		end--
	}
	return fmt.Sprintf("%q…", s[:end])
}
