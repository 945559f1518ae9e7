package main

import (
	"log/slog"
	"os"
	"syscall"
	"testing"
	"time"
)

func TestSecondSignalEndsTheWait(t *testing.T) {
	aborted := make(chan struct{})
	ctx, stop := stopOnSignals(t.Context(), slog.New(slog.DiscardHandler), func() { close(aborted) })
	defer stop()
	interrupt := func() {
		t.Helper()
		if err := syscall.Kill(os.Getpid(), syscall.SIGINT); err != nil {
			t.Fatal(err)
		}
	}
	interrupt()
	select {
	case <-ctx.Done():
	case <-time.After(answerWait):
		t.Fatal("the first signal did not end the context")
	}
	interrupt() // the same one, sent twice
	select {
	case <-aborted:
		t.Fatal("a signal that came twice at once ended the wait")
	case <-time.After(sameSignal + 50*time.Millisecond): // how long it must not happen
	}
	interrupt()
	select {
	case <-aborted:
	case <-time.After(answerWait):
		t.Fatal("the second signal did not end the wait")
	}
}
