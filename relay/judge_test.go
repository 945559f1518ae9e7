package relay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/twmb/franz-go/pkg/kerr"

	"walrelay/decoder"
	"walrelay/internal/postgres"
	"walrelay/internal/source"
)

// A server that ends every session with its own error at one place is told from one that restarts
// (H18).
func TestH18TheErrorThatIsAlwaysSession(t *testing.T) {
	broken := fmt.Errorf("stream: %w", &pgconn.PgError{Code: "XX000", Message: "invalid memory alloc request size"})
	restart := fmt.Errorf("stream: %w", &pgconn.PgError{Code: "57P03"})
	garbage := fmt.Errorf("stream: %w", &decoder.MalformedError{Kind: 'b', What: "unknown message"})
	now := time.Now()
	for _, c := range []struct {
		name string
		ends []error
		at   []int // settled position at each end
		gap  time.Duration
		want bool
	}{
		{"three within a minute at one position", []error{broken, broken, broken}, []int{5, 5, 5}, 10 * time.Second, true},
		{"a stream that cannot be read", []error{garbage, garbage, garbage}, []int{5, 5, 5}, time.Second, true},
		{"two", []error{broken, broken}, []int{5, 5}, time.Second, false},
		{"slowly", []error{broken, broken, broken}, []int{5, 5, 5}, 40 * time.Second, false},
		{"with progress", []error{broken, broken, broken}, []int{5, 6, 7}, time.Second, false},
		{"a restart", []error{restart, restart, restart, restart}, []int{5, 5, 5, 5}, time.Second, false},
		{"a broken connection", []error{io.EOF, io.EOF, io.EOF}, []int{5, 5, 5}, time.Second, false},
	} {
		b := newBackoff()
		var got error
		for i, err := range c.ends {
			if stuck := b.stuck(err, fmt.Sprint(c.at[i]), now.Add(time.Duration(i)*c.gap)); stuck != nil {
				got = stuck
			}
		}
		var mode *postgres.ModeError
		if errors.As(got, &mode) != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

func TestBackoffGrowsAndEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBackoff()
		var last time.Duration
		for i := range 12 {
			began := time.Now()
			if !b.wait(t.Context()) {
				t.Fatal("the wait was cut short")
			}
			took := time.Since(began)
			if took < last/4 || took > backoffMax {
				t.Errorf("wait %d took %v after %v", i, took, last)
			}
			last = took
		}
		if last < backoffMax/2 {
			t.Errorf("the last wait took %v, want %v or more", last, backoffMax/2)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if b.wait(ctx) {
			t.Error("the wait outlived its context")
		}
	})
}

func TestReasonsAreLabels(t *testing.T) {
	for want, err := range map[string]error{
		"kafka_session":       &source.PublishError{Err: context.Canceled},
		"kafka_row":           &source.PublishError{Err: kerr.MessageTooLarge},
		"kafka_topic":         &source.PublishError{Err: kerr.UnknownTopicOrPartition},
		"postgres_57P01":      fmt.Errorf("watch: %w", &pgconn.PgError{Code: "57P01"}),
		"postgres_connection": io.ErrUnexpectedEOF,
		"malformed_stream":    fmt.Errorf("stream: %w", &decoder.MalformedError{Kind: 'b'}),
		"given_up":            &source.PoisonError{Err: io.EOF},
	} {
		if got := reason(err); got != want {
			t.Errorf("%v is %q, want %q", err, got, want)
		}
	}
}
