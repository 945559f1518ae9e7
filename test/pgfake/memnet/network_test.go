package memnet_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"walrelay/test/pgfake/memnet"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pair is a connection's two ends.
func pair(t *testing.T, n *memnet.Network) (client, server *memnet.Conn) {
	t.Helper()
	l, err := n.Listen("tcp", "10.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c, err := n.From("10.0.0.9")(context.Background(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	s, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Close()
		_ = s.Close()
		if left := n.Links(); len(left) != 0 {
			t.Errorf("%d links are left", len(left))
		}
	})
	return c.(*memnet.Conn), s.(*memnet.Conn)
}

func TestBytesArriveInOrderThroughASmallBuffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := memnet.New()
		n.SetBuffer(7)
		client, server := pair(t, n)
		want := bytes.Repeat([]byte("0123456789"), 1000)
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := client.Write(want); err != nil {
				t.Error(err)
			}
			_ = client.Close()
		})
		got, err := io.ReadAll(server)
		wg.Wait()
		if err != nil || !bytes.Equal(got, want) {
			t.Fatalf("read %d bytes, %v; want %d", len(got), err, len(want))
		}
		if _, err := server.Write([]byte("x")); err != nil {
			t.Errorf("first write to a closed peer: %v", err)
		}
		if _, err := server.Write([]byte("x")); !errors.Is(err, syscall.EPIPE) {
			t.Errorf("write to a closed peer: %v", err)
		}
		if _, err := client.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
			t.Errorf("read after Close: %v", err)
		}
	})
}

func TestDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := memnet.New()
		n.SetBuffer(4)
		client, server := pair(t, n)
		began := time.Now()
		_ = client.SetReadDeadline(began.Add(3 * time.Second))
		if _, err := client.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(began) != 3*time.Second {
			t.Fatalf("read: %v after %v", err, time.Since(began))
		}
		// A deadline that is moved reaches the call that waits; a deadline that has passed is not the end.
		_ = client.SetReadDeadline(time.Time{})
		time.AfterFunc(time.Second, func() { _ = client.SetReadDeadline(time.Unix(1, 0)) })
		if _, err := client.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("read: %v", err)
		}
		_ = client.SetReadDeadline(time.Time{})
		if _, err := server.Write([]byte("ab")); err != nil {
			t.Fatal(err)
		}
		if n, err := client.Read(make([]byte, 9)); n != 2 || err != nil {
			t.Fatalf("read %d, %v", n, err)
		}
		_ = client.SetWriteDeadline(time.Now().Add(time.Second))
		wrote, err := client.Write([]byte("123456"))
		var ne net.Error
		if wrote != 4 || !errors.As(err, &ne) || !ne.Timeout() {
			t.Fatalf("write into a full buffer: %d, %v", wrote, err)
		}
	})
}

func TestCutDeliversExactlyTheBytesBefore(t *testing.T) {
	msg := []byte("hello, world")
	for at := range int64(len(msg) + 1) {
		synctest.Test(t, func(t *testing.T) {
			client, server := pair(t, memnet.New())
			if _, err := server.Write([]byte("lost")); err != nil {
				t.Fatal(err)
			}
			client.Link().CutAfter(memnet.ToServer, at)
			n, err := client.Write(msg)
			if int64(n) != at || !errors.Is(err, syscall.ECONNRESET) {
				t.Fatalf("write: %d, %v; cut at %d", n, err, at)
			}
			got, err := io.ReadAll(server)
			if int64(len(got)) != at || !errors.Is(err, syscall.ECONNRESET) {
				t.Fatalf("read %q, %v; cut at %d", got, err, at)
			}
			if _, err := client.Read(make([]byte, 9)); !errors.Is(err, syscall.ECONNRESET) {
				t.Fatalf("read the other way: %v", err)
			}
		})
	}
}

func TestStalledLinkHidesEvenTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := pair(t, memnet.New())
		client.Link().Stall()
		if _, err := client.Write([]byte("late")); err != nil {
			t.Fatal(err)
		}
		_ = client.Close()
		_ = server.SetReadDeadline(time.Now().Add(time.Hour))
		if _, err := server.Read(make([]byte, 9)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("a stalled link showed %v", err)
		}
		if _, err := server.Write([]byte("into the void")); err != nil {
			t.Fatalf("write on a stalled link: %v", err)
		}
		_ = server.SetReadDeadline(time.Time{})
		client.Link().Resume()
		got, err := io.ReadAll(server)
		if string(got) != "late" || err != nil {
			t.Fatalf("after Resume: %q, %v", got, err)
		}
	})
}

func TestLatency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := memnet.New()
		n.SetLatency(30 * time.Millisecond)
		client, server := pair(t, n)
		began := time.Now()
		_, _ = client.Write([]byte("a"))
		time.Sleep(10 * time.Millisecond)
		_, _ = client.Write([]byte("b"))
		b := make([]byte, 9)
		if k, _ := server.Read(b); k != 1 || time.Since(began) != 30*time.Millisecond {
			t.Fatalf("%d bytes after %v", k, time.Since(began))
		}
		if k, _ := server.Read(b); k != 1 || time.Since(began) != 40*time.Millisecond {
			t.Fatalf("%d bytes after %v", k, time.Since(began))
		}
	})
}

func TestRefuseAndReset(t *testing.T) {
	n := memnet.New()
	ctx := context.Background()
	if _, err := n.DialContext(ctx, "tcp", "10.0.0.1:5432"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Fatalf("nobody listens: %v", err)
	}
	l, err := n.Listen("tcp", "10.0.0.1:5432")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := n.Listen("tcp", "10.0.0.1:5432"); err == nil {
		t.Fatal("two listeners at one address")
	}
	l.(*memnet.Listener).Refuse(true)
	if _, err := n.DialContext(ctx, "tcp", "10.0.0.1:5432"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Fatalf("refused: %v", err)
	}
	l.(*memnet.Listener).Refuse(false)
	c, err := n.DialContext(ctx, "tcp", "10.0.0.1:5432")
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close() // nobody accepted it
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Fatalf("read: %v", err)
	}
	_ = c.Close()
	if err := c.Close(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("second Close: %v", err)
	}
	n.OnDial(func(*memnet.Link) error { return syscall.ETIMEDOUT })
	if l, err = n.Listen("tcp", ":0"); err != nil {
		t.Fatal(err)
	}
	if _, err := n.DialContext(ctx, "tcp", l.Addr().String()); !errors.Is(err, syscall.ETIMEDOUT) {
		t.Fatalf("OnDial: %v", err)
	}
	_ = l.Close()
}
