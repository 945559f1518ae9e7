package polling

import (
	"github.com/prometheus/client_golang/prometheus"

	"walrelay/internal/source"
)

type metrics struct {
	source.Metrics
	polls         prometheus.Counter
	notifications prometheus.Counter
	batchRows     prometheus.Histogram
	batchSeconds  prometheus.Histogram
}

func newMetrics(reg prometheus.Registerer, s *Source) *metrics {
	m := &metrics{
		Metrics: source.NewMetrics(reg, "polling", s.Counts, func() bool { return s.State().Phase == PhaseStandby }),
		polls: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "walrelay_polls_total", Help: "Times that the table was asked for rows."}),
		notifications: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "walrelay_notifications_total", Help: "Polls that a NOTIFY came before the interval for."}),
		batchRows: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "walrelay_poll_rows", Help: "Rows of a poll that found some.", Buckets: prometheus.ExponentialBuckets(1, 4, 8)}),
		batchSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "walrelay_poll_seconds", Help: "How long the query of a poll took.", Buckets: prometheus.ExponentialBuckets(0.0005, 2, 16)}),
	}
	reg.MustRegister(m.polls, m.notifications, m.batchRows, m.batchSeconds,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "walrelay_polling", Help: "1 while the table is polled."},
			func() float64 { return source.Bit(s.State().Phase == PhasePolling) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "walrelay_polling_deaf", Help: "1 while no NOTIFY wakes the relay: new rows wait for the interval."},
			func() float64 { st := s.State(); return source.Bit(st.Phase == PhasePolling && st.Deaf) }))
	return m
}
