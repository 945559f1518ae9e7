package sink

import (
	"errors"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the producer's. What is counted for each record is a plain atomic that the registry
// reads when it is asked.
type metrics struct {
	produced      atomic.Int64
	producedBytes atomic.Int64
	acked         atomic.Int64
	failed        [classes]atomic.Int64
	dataLoss      atomic.Int64
	replaced      atomic.Int64

	ackSeconds prometheus.Histogram
	refused    *prometheus.CounterVec

	collectors []prometheus.Collector
}

func newMetrics(reg prometheus.Registerer, p *Producer) *metrics {
	m := &metrics{
		ackSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "walrelay_sink_ack_seconds",
			Help:    "From handing a record over until Kafka acknowledged it.",
			Buckets: prometheus.ExponentialBuckets(0.00025, 2, 18), // 0.25 ms to 33 s
		}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "walrelay_sink_records_refused_total",
			Help: "Records that were not sent because Kafka would reject them, by reason.",
		}, []string{"reason"}),
	}
	counter := func(name, help string, labels prometheus.Labels, v *atomic.Int64) {
		m.collectors = append(m.collectors, prometheus.NewCounterFunc(
			prometheus.CounterOpts{Name: name, Help: help, ConstLabels: labels},
			func() float64 { return float64(v.Load()) }))
	}
	gauge := func(name, help string, labels prometheus.Labels, v func() float64) {
		m.collectors = append(m.collectors, prometheus.NewGaugeFunc(
			prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: labels}, v))
	}
	counter("walrelay_sink_records_produced_total", "Records handed to the Kafka client.", nil, &m.produced)
	counter("walrelay_sink_record_bytes_total", "Bytes of the records handed to the Kafka client, before compression.", nil, &m.producedBytes)
	counter("walrelay_sink_records_acknowledged_total", "Records that Kafka acknowledged.", nil, &m.acked)
	for c := range classes {
		counter("walrelay_sink_records_failed_total", "Records that the Kafka client gave back with an error, by class of the error.",
			prometheus.Labels{"class": c.String()}, &m.failed[c])
	}
	counter("walrelay_sink_data_loss_total", "Times that a broker had lost acknowledged records.", nil, &m.dataLoss)
	counter("walrelay_sink_client_replaced_total", "Times that the Kafka client was replaced because a topic had changed under it.", nil, &m.replaced)
	gauge("walrelay_sink_records_outstanding", "Records that wait for Kafka's acknowledgement.", nil,
		func() float64 { return float64(p.Outstanding()) })
	gauge("walrelay_sink_oldest_outstanding_seconds", "Age of the oldest record that waits for Kafka's acknowledgement, to the second.", nil,
		func() float64 { return p.ages.oldest().Seconds() })
	gauge("walrelay_sink_connected", "1 while Kafka can be reached.", nil,
		func() float64 {
			if p.Connected() {
				return 1
			}
			return 0
		})
	for s := range topicStates {
		gauge("walrelay_sink_topics", "Topics of this process: open can be written to, pending are looked up, unwritable were missing or refused for too long.",
			prometheus.Labels{"state": s.String()}, func() float64 { return float64(p.topics.count(s)) })
	}
	for r := range risks {
		gauge("walrelay_sink_topics_at_risk", "Topics that work and are probably not meant so: min.insync.replicas of 1 with several brokers, max.message.bytes below ours, partitions changed since the start.",
			prometheus.Labels{"reason": r.String()}, func() float64 { return float64(p.topics.countRisk(r)) })
	}
	m.collectors = append(m.collectors, m.ackSeconds, m.refused)
	reg.MustRegister(m.collectors...)
	return m
}

func (m *metrics) refuse(err error) {
	if row, ok := errors.AsType[*RowError](err); ok {
		m.refused.WithLabelValues(string(row.Reason)).Inc()
	}
}

func (m *metrics) unregister(reg prometheus.Registerer) {
	for _, c := range m.collectors {
		reg.Unregister(c)
	}
}
