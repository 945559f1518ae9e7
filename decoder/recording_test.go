package decoder

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// recording is one file of testdata: what a real server sent (test/record wrote it).
type recording struct {
	major    string
	scenario string // file name without .bin.gz
	stream   []byte // records: 4-byte big-endian length and one CopyData payload
}

// base is the scenario without its form.
func (r recording) base() string {
	return strings.TrimSuffix(strings.TrimSuffix(r.scenario, "_messages"), "_binary")
}

// recordings reads all of testdata, in the order of the file names.
func recordings(tb testing.TB) []recording {
	tb.Helper()
	paths, err := filepath.Glob("testdata/*/*.bin.gz")
	if err != nil || len(paths) == 0 {
		tb.Fatalf("no recordings: %v", err)
	}
	all := make([]recording, 0, len(paths))
	for _, path := range paths {
		file, err := os.Open(path)
		if err != nil {
			tb.Fatal(err)
		}
		zip, err := gzip.NewReader(file)
		if err != nil {
			tb.Fatal(err)
		}
		stream, err := io.ReadAll(zip)
		if err != nil {
			tb.Fatalf("%s: %v", path, err)
		}
		file.Close()
		all = append(all, recording{
			major:    filepath.Base(filepath.Dir(path)),
			scenario: strings.TrimSuffix(filepath.Base(path), ".bin.gz"),
			stream:   stream,
		})
	}
	return all
}

// messages calls do with each pgoutput message of a recorded stream, up to the first record that is
// cut short, and says whether the stream was whole.
func messages(stream []byte, do func(msg []byte)) bool {
	const xlogData = 25 // 'w', WAL start, WAL end, time
	for len(stream) > 0 {
		if len(stream) < 4 {
			return false
		}
		n := binary.BigEndian.Uint32(stream)
		stream = stream[4:]
		if uint64(n) > uint64(len(stream)) {
			return false
		}
		if n >= xlogData && stream[0] == 'w' {
			do(stream[xlogData:n:n])
		}
		stream = stream[n:]
	}
	return true
}

// scribble overwrites a message that has been decoded: what still refers to it will show.
func scribble(msg []byte) {
	for i := range msg {
		msg[i] = 0xa5
	}
}

// spare is a copy of a message that may be overwritten.
func spare(msg []byte) []byte { return bytes.Clone(msg) }
