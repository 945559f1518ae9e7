package replication

import (
	"sync/atomic"
	"time"

	"walrelay/internal/source"

	"github.com/jackc/pglogrepl"
	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	source.Metrics
	latency   prometheus.Histogram
	confirmed atomic.Uint64 // position told last
}

func newMetrics(reg prometheus.Registerer, s *Source) *metrics {
	m := &metrics{
		latency: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "walrelay_commit_to_ack_seconds",
			Help:    "From the commit of a transaction, by PostgreSQL's clock, to Kafka's acknowledgement of its event. Sampled: one event is timed at a time.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 18)}),
	}
	gauge := func(name, help string, value func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value)
	}
	m.Metrics = source.NewMetrics(reg, "wal", func() source.Counts {
		stats := s.Stats()
		return source.Counts{InFlight: stats.InFlightRows, Bytes: stats.InFlightBytes, Unsettled: stats.Unsettled}
	}, func() bool { return s.State().Phase == PhaseStandby })
	reg.MustRegister(m.latency,
		gauge("walrelay_settled_lsn", "Settled watermark: everything before it is on Kafka and settled (bytes of WAL).", func() float64 { return float64(s.Stats().SettledLSN) }),
		gauge("walrelay_confirmed_lsn", "Position that PostgreSQL was told last (bytes of WAL).", func() float64 { return float64(m.confirmed.Load()) }),
		gauge("walrelay_streaming", "1 while the stream is alive.", func() float64 { return source.Bit(s.State().Phase == PhaseStreaming) }),
		gauge("walrelay_last_message_age_seconds", "Since the server was last heard.", func() float64 { return age(s.State().Heard) }),
		gauge("walrelay_slot_lag_bytes", "WAL between what the slot has confirmed and what the server has written.",
			func() float64 { w := s.State().Watch; return float64(Behind(w.Current, w.ConfirmedFlush)) }),
		gauge("walrelay_slot_retained_bytes", "WAL that the slot keeps on the server's disk.",
			func() float64 { w := s.State().Watch; return float64(Behind(w.Current, w.Restart)) }),
		gauge("walrelay_slot_safe_wal_size_bytes", "WAL that can still be written before the slot is lost; -1 where max_slot_wal_keep_size sets no limit.",
			func() float64 { return float64(s.State().Watch.SafeWALSize) }),
	)
	for _, status := range []string{"reserved", "extended", "unreserved", "lost"} {
		reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "walrelay_slot_wal_status", Help: "1 for the slot's wal_status.", ConstLabels: prometheus.Labels{"status": status}},
			func() float64 { return source.Bit(s.State().Watch.WALStatus == status) }))
	}
	return m
}

func age(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return time.Since(t).Seconds()
}

// Behind is how many bytes of WAL lie between a position and where the server writes; 0 where the
// position is not known.
func Behind(current, position pglogrepl.LSN) uint64 {
	if position == 0 || position > current {
		return 0
	}
	return uint64(current - position)
}
