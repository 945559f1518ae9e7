package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

// sameSignal is how long after a signal another one is taken for the same: timeout(1) and some
// supervisors send to the process and then to its group, which it is in too.
const sameSignal = 250 * time.Millisecond

// stopOnSignals returns a context that ends with the first SIGTERM or SIGINT. The second calls abort,
// which ends the wait of an orderly stop; the third kills as if nobody listened. The returned function
// ends the listening and its goroutine.
func stopOnSignals(ctx context.Context, log *slog.Logger, abort func()) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		var first time.Time
		for {
			select {
			case sig := <-signals:
				switch {
				case first.IsZero():
					log.Info("signal received: a second one ends the wait for what is in flight", "signal", sig.String())
					first = time.Now()
					cancel()
				case time.Since(first) > sameSignal:
					log.Warn("stopping at once: what is not confirmed will be sent again", "signal", sig.String())
					signal.Stop(signals) // the third has its usual effect
					abort()
					return
				}
			case <-done:
				return
			}
		}
	})
	return ctx, func() {
		signal.Stop(signals)
		close(done)
		wg.Wait()
		cancel()
	}
}
