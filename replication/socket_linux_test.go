package replication

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// sockets returns a socket and its peer, over TCP and over a unix socket.
func sockets(t *testing.T, test func(t *testing.T, s, peer net.Conn)) {
	for network, address := range map[string]string{"tcp": "127.0.0.1:0", "unix": filepath.Join(t.TempDir(), "s")} {
		t.Run(network, func(t *testing.T) {
			l, err := net.Listen(network, address)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			conn, err := net.Dial(network, l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			peer, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer peer.Close()
			s, err := aside(conn)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			if _, ok := s.(*socket); !ok {
				t.Fatalf("a plain connection became a %T", s)
			}
			test(t, s, peer)
		})
	}
}

func TestSocketCarriesBothWays(t *testing.T) {
	sockets(t, func(t *testing.T, s, peer net.Conn) {
		sent := make([]byte, 5<<20) // more than any kernel buffer holds
		rand.NewChaCha8([32]byte{7}).Read(sent)
		go io.Copy(peer, peer) // an echo
		go s.Write(sent)
		got := make([]byte, len(sent))
		if _, err := io.ReadFull(s, got); err != nil || !bytes.Equal(got, sent) {
			t.Fatalf("what came back differs: %v", err)
		}
		peer.Close()
		if n, err := s.Read(got); n != 0 || err != io.EOF {
			t.Errorf("after the end: %d bytes, %v", n, err)
		}
	})
}

// A deadline that is set while a read waits takes effect on it, in both directions.
func TestSocketDeadlines(t *testing.T) {
	sockets(t, func(t *testing.T, s, peer net.Conn) {
		one := make([]byte, 1)
		s.SetReadDeadline(time.Now().Add(time.Millisecond))
		if _, err := s.Read(one); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("a deadline that comes: %v", err)
		}
		s.SetReadDeadline(time.Time{})
		read := make(chan error)
		go func() { _, err := s.Read(one); read <- err }()
		s.SetReadDeadline(time.Unix(1, 0))
		if err := <-read; !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("a deadline that is moved into the past: %v", err)
		}
		// As with every connection of Go, a passed deadline goes before what there is to read.
		peer.Write([]byte{1})
		if _, err := s.Read(one); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("a passed deadline with something to read: %v", err)
		}
		s.SetReadDeadline(time.Now().Add(time.Hour))
		if n, err := s.Read(one); n != 1 || err != nil {
			t.Errorf("the byte: %d, %v", n, err)
		}
	})
}

// Close ends a read that waits, and everything after it; a descriptor that is somebody else's by then is
// not touched.
func TestSocketClose(t *testing.T) {
	sockets(t, func(t *testing.T, s, peer net.Conn) {
		var g sync.WaitGroup
		g.Go(func() {
			if n, err := s.Read(make([]byte, 1)); n != 0 || err == nil {
				t.Errorf("a read that waited: %d, %v", n, err)
			}
		})
		g.Go(func() { s.Close() })
		g.Go(func() { s.SetReadDeadline(time.Unix(1, 0)) })
		g.Wait()
		if _, err := s.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
			t.Errorf("read: %v", err)
		}
		if _, err := s.Write(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
			t.Errorf("write: %v", err)
		}
		if err := s.SetReadDeadline(time.Now()); !errors.Is(err, net.ErrClosed) {
			t.Errorf("deadline: %v", err)
		}
		if err := s.Close(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("close: %v", err)
		}
		if n, err := peer.Read(make([]byte, 1)); n != 0 || err == nil {
			t.Errorf("the peer does not see the end: %d, %v", n, err)
		}
	})
}

// What piles up is read in one go, and nothing is waited for once there is nothing more.
func TestSocketGathers(t *testing.T) {
	sockets(t, func(t *testing.T, s, peer net.Conn) {
		for range 100 {
			peer.Write(make([]byte, 100))
		}
		buf := make([]byte, 100_000)
		if n := s.(*socket).gather(buf); n != 10_000 {
			t.Errorf("%d bytes of 10000", n)
		}
		if n := s.(*socket).gather(buf); n != 0 {
			t.Errorf("%d bytes of none", n)
		}
	})
}

// What the poller must keep is left alone.
func TestSocketLeavesOthers(t *testing.T) {
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	if s, err := aside(a); s != a || err != nil {
		t.Errorf("%T, %v", s, err)
	}
}
