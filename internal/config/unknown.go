package config

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// ownPrefixes begin the names of walrelay's variables alone. sharedPrefixes also begin names of others
// (KAFKA_HEAP_OPTS, HTTP_PROXY, LOG_DIR), so there only a name that looks misspelt is an error.
var (
	ownPrefixes    = []string{"RELAY_", "OUTBOX_", "REPLICATION_", "ROUTER_", "POLLING_"}
	sharedPrefixes = []string{"KAFKA_", "HTTP_", "LOG_", "DATABASE_"}
)

// serviceLink matches what Kubernetes sets in every container for a service called, say, "outbox".
var serviceLink = regexp.MustCompile(`^[A-Z0-9_]+_(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)$`)

// misspelt is the edit distance up to which a name is taken for a known one with a mistake in it.
const misspelt = 2

// judgeUnknown finds variables that walrelay does not know but that look as if they were for it.
func judgeUnknown(vars map[string]string) (problems Problems, warnings []string) {
	var known []string
	for _, s := range Settings() {
		known = append(known, s.Name)
		if s.Secret {
			known = append(known, s.Name+"_FILE")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(vars)) {
		own, shared := hasPrefix(name, ownPrefixes), hasPrefix(name, sharedPrefixes)
		if (!own && !shared) || slices.Contains(known, name) || serviceLink.MatchString(name) {
			continue
		}
		near, distance := nearest(name, known)
		switch {
		case distance <= misspelt:
			problems = append(problems, fmt.Errorf("%s is unknown: did you mean %s?", name, near))
		case own:
			problems = append(problems, fmt.Errorf(`%s is unknown: "walrelay config" lists every variable`, name))
		case strings.HasPrefix(name, "KAFKA_"):
			warnings = append(warnings, name+" is not a setting of walrelay and has no effect on it")
		}
	}
	return problems, warnings
}

func hasPrefix(name string, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}

// nearest returns the known name with the fewest edits to name, and their number.
func nearest(name string, known []string) (best string, distance int) {
	distance = len(name) + 100
	for _, k := range known {
		if d := editDistance(name, k); d < distance {
			best, distance = k, d
		}
	}
	return best, distance
}

// editDistance is Levenshtein's: insertions, deletions and replacements that turn a into b.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replace := diagonal
			if a[i] != b[j] {
				replace++
			}
			diagonal = row[j+1]
			row[j+1] = min(replace, row[j+1]+1, row[j]+1)
		}
	}
	return row[len(b)]
}
