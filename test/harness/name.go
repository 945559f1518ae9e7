package harness

import (
	"crypto/rand"
	"encoding/hex"
	"strings"
	"testing"
)

// Name is unique and tells which test it is of. It serves as the name of a database, slot,
// publication or topic: lower case letters, digits and underscores, at most 48 of them, so that an
// ending still fits PostgreSQL's 63 bytes.
func Name(t testing.TB) string {
	t.Helper()
	var random [4]byte
	rand.Read(random[:]) // never fails
	name := clean(strings.TrimPrefix(t.Name(), "Test"), "_")
	if len(name) > 38 {
		name = name[:38]
	}
	return "t" + name + "_" + hex.EncodeToString(random[:])
}

// clean keeps lower case letters and digits; each run of anything else becomes one separator.
func clean(s, separator string) string {
	words := strings.FieldsFunc(strings.ToLower(s), func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9')
	})
	return strings.Join(words, separator)
}
