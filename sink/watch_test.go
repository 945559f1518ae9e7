package sink

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"
)

func TestAges(t *testing.T) {
	var a ages
	now := time.Now().Add(-time.Hour)
	a.slots[0].since.Store(now.UnixNano())
	if a.oldest() != 0 {
		t.Error("nothing is outstanding")
	}
	slot := a.add()
	for range 3 * ageSlots {
		now = now.Add(ageInterval)
		a.tick(now)
		a.add()
	}
	if got := a.oldest(); got < time.Hour || got > time.Hour+time.Minute {
		t.Errorf("oldest: %v", got)
	}
	a.remove(slot)
	if got := a.oldest(); got >= time.Hour {
		t.Errorf("oldest: %v after the oldest is gone", got)
	}
	if a.current.Load() != ageSlots-1 {
		t.Errorf("the current slot went on onto a full one: %d", a.current.Load())
	}
}

func TestSilenceIsSaidOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &logged{}
		p := offline(t)
		p.log = slog.New(slog.NewTextHandler(log, nil))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- p.watch(ctx) }()
		time.Sleep(time.Minute)
		if s := log.String(); s != "" {
			t.Errorf("nothing was outstanding: %s", s)
		}
		slot := p.ages.add()
		for range 10 {
			time.Sleep(time.Second)
			p.ages.remove(p.ages.add()) // others come and go
		}
		time.Sleep(time.Minute)
		if n := log.count("kafka does not acknowledge"); n != 1 {
			t.Errorf("said %d times", n)
		}
		if n := log.count("kafka acknowledges again"); n != 0 {
			t.Error("it does not")
		}
		p.ages.remove(slot)
		time.Sleep(time.Minute)
		if n := log.count("kafka acknowledges again"); n != 1 {
			t.Errorf("said %d times that it is over", n)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// kgo's lines are for debugging, its errors are not to be missed, and neither floods.
func TestClientLog(t *testing.T) {
	out := &logged{}
	l := newClientLog(slog.New(slog.NewTextHandler(out, nil)))
	if l.Level() != kgo.LogLevelError {
		t.Errorf("level %v", l.Level())
	}
	for range 100 {
		l.Log(kgo.LogLevelWarn, "unable to open connection to broker", "err", "refused")
		l.Log(kgo.LogLevelError, "unable to request api versions", "err", "refused")
	}
	if n := strings.Count(out.String(), "\n"); n != 1 {
		t.Errorf("%d lines: %s", n, out)
	}
	if !l.first("x", time.Now()) || l.first("x", time.Now()) || !l.first("x", time.Now().Add(2*time.Minute)) {
		t.Error("not one a minute")
	}
	debug := newClientLog(slog.New(slog.NewTextHandler(out, &slog.HandlerOptions{Level: slog.LevelDebug})))
	if debug.Level() != kgo.LogLevelInfo {
		t.Errorf("level %v", debug.Level())
	}
}

func TestMetrics(t *testing.T) {
	k := startFake(t)
	p := start(t, k, nil)
	p.send(0, "t", "k", "v")
	p.acks.wait(t, 1)
	families, err := p.reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := make(map[string]float64)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			labels := ""
			for _, l := range m.GetLabel() {
				labels += "," + l.GetName() + "=" + l.GetValue()
			}
			got[f.GetName()+labels] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	for name, want := range map[string]float64{
		"walrelay_sink_records_produced_total":           1,
		"walrelay_sink_records_acknowledged_total":       1,
		"walrelay_sink_records_failed_total,class=row":   0,
		"walrelay_sink_records_failed_total,class=topic": 0,
		"walrelay_sink_records_outstanding":              0,
		"walrelay_sink_ack_seconds":                      1,
		"walrelay_sink_topics,state=open":                1,
		"walrelay_sink_connected":                        1,
	} {
		if v, ok := got[name]; !ok || v != want {
			t.Errorf("%s is %v (there: %v), want %v", name, v, ok, want)
		}
	}
	if got["walrelay_sink_record_bytes_total"] < 2 {
		t.Errorf("bytes: %v", got["walrelay_sink_record_bytes_total"])
	}
	kgos := 0
	for name := range got {
		if strings.HasPrefix(name, "walrelay_kafka_") {
			kgos++
		}
	}
	if kgos < 10 {
		t.Errorf("%d metrics of kgo's", kgos)
	}
	// A producer takes its metrics along when it closes.
	reg := prometheus.NewRegistry()
	for range 2 {
		cfg := p.cfg
		q, err := New(cfg, reg, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		q.Close(t.Context())
	}
	if left, err := reg.Gather(); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}
