package chaos

import (
	"math/rand/v2"
	"time"
)

func relayFaults() []fault {
	return []fault{
		{"kill -9", always, false, func(w *world, _ *rand.Rand) {
			w.inject("kill -9", "")
			w.kill()
		}},
		{"SIGTERM", always, false, func(w *world, _ *rand.Rand) {
			w.inject("SIGTERM", "")
			w.terminate(true)
		}},
		{"kill -9 in a row", short, false, func(w *world, r *rand.Rand) {
			for range 2 + r.IntN(4) {
				d := time.Duration(r.Int64N(int64(time.Second)))
				w.inject("kill -9", "%v after it was started", d.Round(time.Millisecond))
				w.wait(d)
				w.kill()
			}
		}},
		// Longer than wal_sender_timeout, as the relay sets it, and than its own lease: 15 s.
		{"SIGSTOP", short, false, func(w *world, r *rand.Rand) {
			d := w.between(r, 16*time.Second, 22*time.Second)
			w.inject("SIGSTOP", "for %v", d.Round(time.Millisecond))
			w.relay.Pause(w.t)
			w.wait(d)
			if r.IntN(4) == 0 {
				w.inject("kill -9", "of the stopped relay")
				w.kill()
				return
			}
			w.relay.Continue(w.t)
		}},
	}
}

// kill ends the relay by kill -9 and starts another.
func (w *world) kill() {
	w.lives()
	w.relay.Kill(w.t)
	w.start()
}

// terminate ends the relay by SIGTERM and starts another. When nothing else is wrong it must get
// everything confirmed that it has published; else it may say that it could not.
func (w *world) terminate(calm bool) {
	w.lives()
	began := time.Now()
	w.relay.Terminate(w.t)
	code := w.relay.Code(w.t)
	if took := time.Since(began); code != 0 && (calm || code != 1) || took > terminateLimit {
		w.broke(progress, "after SIGTERM the relay took %v and ended with exit code %d:\n%s", took.Round(time.Millisecond), code, tail(w.relay.Log()))
	}
	w.start()
}

// terminateLimit is RELAY_SHUTDOWN_TIMEOUT, 10 s, and some time on a busy machine.
const terminateLimit = 20 * time.Second
