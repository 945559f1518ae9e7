package simulation

import (
	"fmt"
	"time"
)

// Kill is kill -9 of a relay: its connections are gone at once and nothing more of it is seen.
type Kill struct {
	Relay int
	Down  time.Duration
}

func (a Kill) String() string {
	return fmt.Sprintf("kill -9 of relay %d, started again after %v", a.Relay, a.Down)
}

func (a Kill) do(w *world) {
	w.endProcess(a.Relay, a.Down, func(p *process) { p.kill() })
}

// Term is SIGTERM of a relay, and a second one where its stop takes longer than Patience.
type Term struct {
	Relay    int
	Patience time.Duration
	Down     time.Duration
}

func (a Term) String() string {
	return fmt.Sprintf("SIGTERM to relay %d, again after %v, started again %v after its end", a.Relay, a.Patience, a.Down)
}

func (a Term) do(w *world) {
	w.endProcess(a.Relay, a.Down, func(p *process) {
		p.stopped.Store(true)
		p.stop()
		w.later(a.Patience, p.relay.Abort)
	})
}
