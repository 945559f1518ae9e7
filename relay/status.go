package relay

import (
	"time"

	"walrelay/replication"
)

// Status is what the relay says about itself, for the status page and for people who script.
type Status struct {
	Mode          string    `json:"mode"`
	Phase         string    `json:"phase"`
	Since         time.Time `json:"since"`
	Ready         bool      `json:"ready"`
	Reason        string    `json:"reason,omitempty"`
	Slot          string    `json:"slot"`
	Current       string    `json:"current_lsn"`         // where the server writes
	Confirmed     string    `json:"confirmed_flush_lsn"` // what the slot has confirmed
	Settled       string    `json:"settled_lsn"`         // what this process has settled
	LagBytes      uint64    `json:"slot_lag_bytes"`
	RetainedBytes uint64    `json:"slot_retained_bytes"`
	WALStatus     string    `json:"wal_status"`
	SafeWALSize   int64     `json:"safe_wal_size"` // bytes until the slot is lost; -1: no limit
	InFlight      int       `json:"in_flight"`
	InFlightBytes int64     `json:"in_flight_bytes"`
	Unsettled     int       `json:"unsettled"`
	Heard         time.Time `json:"last_message"`
}

// Status may be called at any time.
func (r *Relay) Status() Status {
	st, stats := r.source.State(), r.source.Stats()
	w := st.Watch
	s := Status{
		Mode: "wal", Phase: string(st.Phase), Since: st.Since, Ready: true, Slot: r.source.Slot(),
		Current: w.Current.String(), Confirmed: w.ConfirmedFlush.String(), Settled: stats.SettledLSN.String(),
		WALStatus: w.WALStatus, SafeWALSize: w.SafeWALSize,
		InFlight: stats.InFlightRows, InFlightBytes: stats.InFlightBytes, Unsettled: stats.Unsettled, Heard: st.Heard,
	}
	if w.Slot {
		s.LagBytes = replication.Behind(w.Current, w.ConfirmedFlush)
		s.RetainedBytes = replication.Behind(w.Current, w.Restart)
	}
	if err := r.Ready(); err != nil {
		s.Ready, s.Reason = false, err.Error()
	}
	return s
}
