package compare

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"walrelay/outbox"
)

// A stamp of a relay's trace: what happened, to which event, when. The clock is the machine's, which
// the relay shares with the writer and the consumer.
const (
	stampReceived byte = 'r'
	stampAcked    byte = 'a'
	stampSize          = 1 + 16 + 8
)

// TraceWriter writes the stamps of a relay to the process that compares. It keeps them for a moment: the
// relay must not wait for a pipe at each event.
type TraceWriter struct {
	mu  sync.Mutex
	buf *bufio.Writer
}

// tracePause is how long stamps are kept.
const tracePause = 50 * time.Millisecond

// NewTraceWriter writes to w.
func NewTraceWriter(w io.Writer) *TraceWriter {
	return &TraceWriter{buf: bufio.NewWriterSize(w, 256<<10)}
}

// Run hands the stamps on until done is closed, and what is left then.
func (t *TraceWriter) Run(done <-chan struct{}) error {
	ticker := time.NewTicker(tracePause)
	defer ticker.Stop()
	for {
		ended := false
		select {
		case <-done:
			ended = true
		case <-ticker.C:
		}
		t.mu.Lock()
		err := t.buf.Flush()
		t.mu.Unlock()
		if err != nil || ended {
			return err
		}
	}
}

// Received is the moment at which an event is handed over to Kafka's client.
func (t *TraceWriter) Received(id outbox.EventID) { t.stamp(stampReceived, id) }

// Acked is the moment of Kafka's acknowledgement.
func (t *TraceWriter) Acked(id outbox.EventID) { t.stamp(stampAcked, id) }

func (t *TraceWriter) stamp(what byte, id outbox.EventID) {
	var b [stampSize]byte
	b[0] = what
	copy(b[1:], id[:])
	binary.BigEndian.PutUint64(b[17:], uint64(time.Now().UnixNano()))
	t.mu.Lock()
	defer t.mu.Unlock()
	_, _ = t.buf.Write(b[:]) // an error comes again at the next flush
}

// readTrace notes the stamps until the relay has closed its end.
func readTrace(r io.Reader, j *journal) error {
	in := bufio.NewReaderSize(r, 256<<10)
	var b [stampSize]byte
	for {
		_, err := io.ReadFull(in, b[:])
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the relay's trace: %w", err)
		}
		at := time.Unix(0, int64(binary.BigEndian.Uint64(b[17:])))
		switch b[0] {
		case stampReceived:
			j.note(outbox.EventID(b[1:17]), received, at)
		case stampAcked:
			j.note(outbox.EventID(b[1:17]), acked, at)
		default:
			return fmt.Errorf("read the relay's trace: unknown stamp %q", b[0])
		}
	}
}
