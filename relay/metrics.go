package relay

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	sessions *prometheus.CounterVec
	poison   prometheus.Counter
	givenUp  prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		sessions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "walrelay_reconnects_total", Help: "Sessions that ended and were followed by another, by reason (postgres_<SQLSTATE>, postgres_connection, kafka_<class>, lease, history, server_stopping, given_up)."}, []string{"reason"}),
		poison: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "walrelay_poison_events_total", Help: "Events that can never be published as they are; the relay halts at each."}),
		givenUp: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "walrelay_events_given_up_total", Help: "Poison events that were passed over because an operator had marked their row."}),
	}
	reg.MustRegister(m.sessions, m.poison, m.givenUp)
	return m
}
