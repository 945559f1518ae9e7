package sink

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// clientLog is kgo's logger. A client without its broker logs for each of its retries; what an
// operator needs to know of that, reach and watch say once. So kgo's own lines are at Debug, except
// its errors, which are Warn and no more than one a minute of each kind.
type clientLog struct {
	log *slog.Logger

	mu struct {
		sync.Mutex
		said map[string]time.Time // by message: kgo's are constants, with the details in the attributes
	}
}

const (
	sayAgainAfter = time.Minute
	saidKinds     = 64
)

func newClientLog(log *slog.Logger) *clientLog { return &clientLog{log: log} }

// Level is called before each line. kgo's own debug level describes every single request; it stays off.
func (l *clientLog) Level() kgo.LogLevel {
	if l.log.Enabled(context.Background(), slog.LevelDebug) {
		return kgo.LogLevelInfo
	}
	return kgo.LogLevelError
}

func (l *clientLog) Log(level kgo.LogLevel, msg string, keyvals ...any) {
	to := slog.LevelDebug
	if level == kgo.LogLevelError && l.first(msg, time.Now()) {
		to = slog.LevelWarn
	}
	l.log.Log(context.Background(), to, "kafka client: "+msg, keyvals...)
}

// first reports whether msg was not said within the last minute.
func (l *clientLog) first(msg string, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if at, ok := l.mu.said[msg]; ok && now.Sub(at) < sayAgainAfter {
		return false
	}
	if l.mu.said == nil || len(l.mu.said) >= saidKinds {
		l.mu.said = make(map[string]time.Time)
	}
	l.mu.said[msg] = now
	return true
}
