package relay

import (
	"time"

	"walrelay/polling"
	"walrelay/replication"
)

// Status is what the relay says about itself, for the status page and for people who script.
type Status struct {
	Mode          string    `json:"mode"`
	Phase         string    `json:"phase"`
	Since         time.Time `json:"since"`
	Ready         bool      `json:"ready"`
	Reason        string    `json:"reason,omitempty"`
	*Slot                   // RELAY_MODE=wal
	*Poll                   // RELAY_MODE=polling
	InFlight      int       `json:"in_flight"`
	InFlightBytes int64     `json:"in_flight_bytes"`
	Unsettled     int       `json:"unsettled"`
	Heard         time.Time `json:"last_message"`
}

// Slot is where the replication slot stands.
type Slot struct {
	Slot          string `json:"slot"`
	Current       string `json:"current_lsn"`         // where the server writes
	Confirmed     string `json:"confirmed_flush_lsn"` // what the slot has confirmed
	Settled       string `json:"settled_lsn"`         // what this process has settled
	LagBytes      uint64 `json:"slot_lag_bytes"`
	RetainedBytes uint64 `json:"slot_retained_bytes"`
	WALStatus     string `json:"wal_status"`
	SafeWALSize   int64  `json:"safe_wal_size"` // bytes until the slot is lost; -1: no limit
}

// Poll is how the table is polled.
type Poll struct {
	Interval string `json:"polling_interval"`
	Notified bool   `json:"woken_by_notify"`
}

// Status may be called at any time.
func (r *Relay) Status() Status {
	var s Status
	if r.poll != nil {
		s = r.pollStatus()
	} else {
		s = r.walStatus()
	}
	s.Ready = true
	if err := r.Ready(); err != nil {
		s.Ready, s.Reason = false, err.Error()
	}
	return s
}

func (r *Relay) walStatus() Status {
	st, stats := r.wal.State(), r.wal.Stats()
	w := st.Watch
	slot := &Slot{
		Slot:    r.wal.Slot(),
		Current: w.Current.String(), Confirmed: w.ConfirmedFlush.String(), Settled: stats.SettledLSN.String(),
		WALStatus: w.WALStatus, SafeWALSize: w.SafeWALSize,
	}
	if w.Slot {
		slot.LagBytes = replication.Behind(w.Current, w.ConfirmedFlush)
		slot.RetainedBytes = replication.Behind(w.Current, w.Restart)
	}
	return Status{
		Mode: string(WAL), Phase: string(st.Phase), Since: st.Since, Slot: slot,
		InFlight: stats.InFlightRows, InFlightBytes: stats.InFlightBytes, Unsettled: stats.Unsettled, Heard: st.Heard,
	}
}

func (r *Relay) pollStatus() Status {
	st, c := r.poll.State(), r.poll.Counts()
	return Status{
		Mode: string(Polling), Phase: string(st.Phase), Since: st.Since,
		Poll:     &Poll{Interval: r.poll.Interval().String(), Notified: st.Phase == polling.PhasePolling && !st.Deaf},
		InFlight: c.InFlight, InFlightBytes: c.Bytes, Unsettled: c.Unsettled, Heard: st.Heard,
	}
}
