package sink

import (
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
)

// A Secret is a password or a token. However it is formatted, encoded or logged, it does not show.
// One that was given as a file is read again for each login, so that it can be changed under a
// running relay.
type Secret struct{ value, path string }

const hidden = "(secret)"

// UnmarshalText takes the value over.
func (s *Secret) UnmarshalText(text []byte) error {
	s.value = string(text)
	return nil
}

// FromFile says which file the value was read from.
func (s *Secret) FromFile(path string) { s.path = path }

func (s Secret) String() string               { return hidden }
func (s Secret) GoString() string             { return hidden }
func (s Secret) LogValue() slog.Value         { return slog.StringValue(hidden) }
func (s Secret) MarshalText() ([]byte, error) { return []byte(hidden), nil }

func (s Secret) set() bool { return s.value != "" }

// secretFile gives out a secret as its file has it now. A file that cannot be read, or is empty, as it
// may be while it is being replaced, leaves the last value in use, and is said once.
type secretFile struct {
	Secret
	name string // of the variable
	log  *slog.Logger

	mu struct {
		sync.Mutex
		said bool
	}
}

func newSecretFile(s Secret, name string, log *slog.Logger) *secretFile {
	return &secretFile{Secret: s, name: name, log: log}
}

func (f *secretFile) read() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.path == "" {
		return f.value
	}
	content, err := os.ReadFile(f.path)
	value := strings.TrimRight(string(content), "\r\n")
	if err == nil && value == "" {
		err = fmt.Errorf("%s is empty", f.path)
	}
	if err != nil {
		if !f.mu.said {
			f.mu.said = true
			f.log.Warn("a secret cannot be read again: its last value stays in use", "variable", f.name+"_FILE", "error", err)
		}
		return f.value
	}
	f.value, f.mu.said = value, false
	return value
}
