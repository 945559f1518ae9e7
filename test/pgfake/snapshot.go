package pgfake

import (
	"slices"
	"strconv"
)

// Snapshot is what pg_current_snapshot() returns.
type Snapshot struct {
	Xmin, Xmax uint64
	Xip        []uint64
}

// Visible says whether a transaction's effects are in the snapshot.
func (s Snapshot) Visible(xid uint64) bool {
	return xid < s.Xmin || xid < s.Xmax && !slices.Contains(s.Xip, xid)
}

// String is the text form of pg_snapshot: xmin:xmax:xip,xip…
func (s Snapshot) String() string {
	b := strconv.AppendUint(nil, s.Xmin, 10)
	b = append(b, ':')
	b = strconv.AppendUint(b, s.Xmax, 10)
	b = append(b, ':')
	for i, xid := range s.Xip {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendUint(b, xid, 10)
	}
	return string(b)
}

// Snapshot takes a snapshot now.
func (s *Server) Snapshot() Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.snapshotLocked()
}

func (s *Server) snapshotLocked() Snapshot {
	snap := Snapshot{Xmax: s.lastXID + 1}
	snap.Xmin = snap.Xmax
	for xid := range s.running {
		if xid < snap.Xmax {
			snap.Xip = append(snap.Xip, xid)
			snap.Xmin = min(snap.Xmin, xid)
		}
	}
	slices.Sort(snap.Xip)
	return snap
}
