package replication

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"testing"
	"time"
)

// message frames a body as the server does.
func message(typ byte, body []byte) []byte {
	b := append([]byte{typ, 0, 0, 0, 0}, body...)
	binary.BigEndian.PutUint32(b[1:], uint32(len(body)+4))
	return b
}

// drip is a connection that delivers its bytes in pieces, with a passed deadline in between.
type drip struct {
	net.Conn
	left  []byte
	rnd   *rand.Rand
	ticks bool
}

func (d *drip) Read(p []byte) (int, error) {
	if d.ticks = !d.ticks; d.ticks && d.rnd.IntN(2) == 0 {
		return 0, os.ErrDeadlineExceeded
	}
	if len(d.left) == 0 {
		return 0, io.EOF
	}
	n := copy(p, d.left[:min(len(d.left), 1+d.rnd.IntN(40_000))])
	d.left = d.left[n:]
	return n, nil
}

// Messages of every size, cut anywhere, with deadlines in between, come out whole and in order; those
// above the limit are streamed and leave nothing behind.
func TestWireFramesWhateverTheCuts(t *testing.T) {
	noise := make([]byte, 2<<20)
	rand.NewChaCha8([32]byte{1}).Read(noise)
	for seed := range uint64(12) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		const limit = 600_000
		var stream []byte
		var want [][]byte
		for range 60 {
			n := rnd.IntN(200)
			switch rnd.IntN(10) {
			case 0:
				n = 0
			case 1:
				n = readBuffer + rnd.IntN(readBuffer)
			case 2:
				n = limit + 1 + rnd.IntN(1000)
			}
			b := noise[rnd.IntN(len(noise)-n):][:n]
			want = append(want, b)
			stream = append(stream, message('d', b)...)
		}
		w := newWire(&drip{left: stream, rnd: rnd}, limit)
		for i := 0; i < len(want); {
			typ, got, large, err := w.next()
			if errors.Is(err, errTick) {
				continue
			}
			if err != nil {
				t.Fatalf("seed %d, message %d: %v", seed, i, err)
			}
			if large > 0 {
				if got, err = io.ReadAll(io.LimitReader(body{w, func() error { return nil }}, int64(large))); err != nil {
					t.Fatalf("seed %d, message %d: %v", seed, i, err)
				}
			}
			if typ != 'd' || !bytes.Equal(got, want[i]) {
				t.Fatalf("seed %d, message %d: %d bytes, want %d", seed, i, len(got), len(want[i]))
			}
			i++
		}
		if len(w.buf) > 2*(limit+headerLen) {
			t.Errorf("seed %d: the buffer has grown to %d bytes", seed, len(w.buf))
		}
	}
}

func TestWireRefusesANegativeLength(t *testing.T) {
	w := newWire(&drip{left: []byte{'d', 0, 0, 0, 1}, rnd: rand.New(rand.NewPCG(1, 1))}, 100)
	for {
		_, _, _, err := w.next()
		if errors.Is(err, errTick) {
			continue
		}
		if err == nil {
			t.Fatal("a length below 4 was taken")
		}
		return
	}
}

// sink is the other end of a connection on which only writes matter.
type sinkConn struct {
	net.Conn
	wrote []byte
}

func (s *sinkConn) Write(b []byte) (int, error)      { s.wrote = append(s.wrote, b...); return len(b), nil }
func (s *sinkConn) SetWriteDeadline(time.Time) error { return nil }
func (s *sinkConn) field(at int) uint64              { return binary.BigEndian.Uint64(s.wrote[at:]) }

func TestStatusLayout(t *testing.T) {
	c := &sinkConn{}
	w := newWire(c, 100)
	if err := w.sendStatus(0x10, 0x20, epoch.Add(3*time.Microsecond), true); err != nil {
		t.Fatal(err)
	}
	if len(c.wrote) != 39 || c.wrote[0] != 'd' || binary.BigEndian.Uint32(c.wrote[1:]) != 38 || c.wrote[5] != 'r' {
		t.Fatalf("frame % x", c.wrote)
	}
	if c.field(6) != 0x20 || c.field(14) != 0x20 || c.field(22) != 0x20 || c.field(30) != 3 || c.wrote[38] != 1 {
		t.Errorf("status % x: written may not lie below flushed", c.wrote)
	}
}

func TestBodySendsStatusWhileALargeRowArrives(t *testing.T) {
	server, client := net.Pipe()
	defer server.Close()
	w := newWire(client, 10)
	ticks := 0
	r := body{w, func() error {
		ticks++
		client.SetReadDeadline(time.Time{})
		go server.Write([]byte("row"))
		return nil
	}}
	client.SetReadDeadline(time.Unix(1, 0))
	buf := make([]byte, 3)
	if _, err := io.ReadFull(r, buf); err != nil || string(buf) != "row" || ticks == 0 {
		t.Errorf("%q after %d ticks: %v", buf, ticks, err)
	}
}
