package checkpoint

import (
	"fmt"
	"strconv"
	"strings"
)

// isVisible says whether a transaction that has its commit record is visible in a snapshot, whose text is
// xmin:xmax:xip,xip,… (PostgreSQL docs, pg_snapshot). Decoding sends a transaction as soon as its commit record is
// flushed; its writer leaves the list of running transactions later, behind a synchronous standby much later (H1).
//
// xid is Begin's: of the top-level transaction, as snapshots have them.
func isVisible(xid uint32, snapshot string) (bool, error) {
	parts := strings.Split(snapshot, ":")
	if len(parts) != 3 {
		return false, fmt.Errorf("snapshot %q", snapshot)
	}
	xmin, err := strconv.ParseUint(parts[0], 10, 64)
	if err != nil {
		return false, fmt.Errorf("snapshot %q: %w", snapshot, err)
	}
	xmax, err := strconv.ParseUint(parts[1], 10, 64)
	if err != nil {
		return false, fmt.Errorf("snapshot %q: %w", snapshot, err)
	}
	full := widen(xid, xmax)
	switch {
	case full >= xmax:
		return false, nil
	case full < xmin:
		return true, nil
	}
	for running := range strings.SplitSeq(parts[2], ",") {
		if running == "" {
			continue
		}
		x, err := strconv.ParseUint(running, 10, 64)
		if err != nil {
			return false, fmt.Errorf("snapshot %q: %w", snapshot, err)
		}
		if x == full {
			return false, nil
		}
	}
	return true, nil
}

// widen gives a 32-bit transaction id its epoch: it is less than 2^31 away from the snapshot's xmax.
func widen(xid uint32, xmax uint64) uint64 {
	return xmax + uint64(int64(int32(xid-uint32(xmax))))
}
