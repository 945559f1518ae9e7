package sink

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Every code that kerr knows, and those that it will know, is Session unless it stands here. A new
// code that asks for something else therefore changes this table on purpose, or nothing.
func TestClassifyEveryCode(t *testing.T) {
	table := map[int16]Class{
		2: Row, 10: Row, 17: Row, 18: Row, 44: Row, 87: Row,
		3: Topic, 29: Topic, 43: Topic, 100: Topic, 103: Topic,
		31: Fatal, 53: Fatal, 76: Fatal,
	}
	known := 0
	for code := int16(-1); code <= 150; code++ {
		err := kerr.ErrorForCode(code)
		if code == 0 {
			continue
		}
		if k, ok := errors.AsType[*kerr.Error](err); ok && k.Code == code {
			known++
		}
		for _, e := range []error{err, fmt.Errorf("wrapped: %w", err), errors.Join(errors.New("other"), err), &kadm.AuthError{Err: err}} {
			if got := Classify(e); got != table[code] {
				t.Errorf("%v (%d): %v, want %v", e, code, got, table[code])
			}
		}
	}
	if known < 130 {
		t.Errorf("kerr knows %d codes only: is ErrorForCode still what it was?", known)
	}
}

func TestClassifyWhatIsNotAKafkaCode(t *testing.T) {
	for _, c := range []struct {
		err  error
		want Class
	}{
		{kgo.ErrRecordTimeout, Session},
		{kgo.ErrRecordRetries, Session},
		{kgo.ErrMaxBuffered, Session},
		{kgo.ErrAborting, Session},
		{kgo.ErrClientClosed, Session},
		{&kgo.ErrFirstReadEOF{}, Session},
		{&kgo.ErrDataLoss{}, Session},
		{context.Canceled, Session},
		{context.DeadlineExceeded, Session},
		{io.EOF, Session},
		{&net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}, Session},
		{&net.DNSError{IsNotFound: true}, Session},
		{errors.New("something else"), Session},
		{ErrPending, Session},
		{&RowError{Topic: "t", Reason: NoKey, Err: errors.New("no key")}, Row},
		{&TopicError{Topic: "t", Err: kerr.ClusterAuthorizationFailed}, Topic},
		{fmt.Errorf("init: %w", kerr.ClusterAuthorizationFailed), Fatal},
		{fmt.Errorf("init: %w", kerr.SaslAuthenticationFailed), Session}, // reach decides
	} {
		if got := Classify(c.err); got != c.want {
			t.Errorf("%T %v: %v, want %v", c.err, c.err, got, c.want)
		}
	}
}
