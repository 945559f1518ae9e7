package source

import "github.com/prometheus/client_golang/prometheus"

// Counts are the rows that a source has on their way.
type Counts struct {
	InFlight  int // handed to Kafka and not acknowledged
	Bytes     int64
	Unsettled int // acknowledged and not settled in the table
}

// Metrics are those that every source has, under the same names.
type Metrics struct {
	Received prometheus.Counter
	Settled  prometheus.Counter
	Removed  prometheus.Counter
}

// NewMetrics registers them. counts and standby are asked at each scrape.
func NewMetrics(reg prometheus.Registerer, mode string, counts func() Counts, standby func() bool) Metrics {
	m := Metrics{
		Received: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "walrelay_rows_received_total", Help: "Outbox rows read from PostgreSQL and handed on to Kafka."}),
		Settled: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "walrelay_rows_settled_total", Help: "Published rows that were marked, deleted or found so in the table."}),
		Removed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "walrelay_rows_removed_total", Help: "Published rows that the application had removed from the table before they were settled."}),
	}
	gauge := func(name, help string, value func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value)
	}
	reg.MustRegister(m.Received, m.Settled, m.Removed,
		gauge("walrelay_rows_in_flight", "Rows handed to Kafka and not acknowledged.", func() float64 { return float64(counts().InFlight) }),
		gauge("walrelay_bytes_in_flight", "Bytes of the rows in flight.", func() float64 { return float64(counts().Bytes) }),
		gauge("walrelay_rows_unsettled", "Rows acknowledged by Kafka and not settled in the table.", func() float64 { return float64(counts().Unsettled) }),
		gauge("walrelay_standby", "1 while another relay holds the lock of the table.", func() float64 { return Bit(standby()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "walrelay_mode", Help: "1 for the mode that the relay reads in.", ConstLabels: prometheus.Labels{"mode": mode}},
			func() float64 { return 1 }))
	return m
}

// Bit is a truth as a metric has it.
func Bit(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
