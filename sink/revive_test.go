package sink

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A broker that refuses a producer id once has refused it for ever, as far as kgo is concerned.
func TestProducerIDRefusedOnce(t *testing.T) {
	k := startFake(t, kfake.SeedTopics(1, "t"))
	k.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.InitProducerID}, Err: kerr.UnknownServerError, Count: 1})
	p := start(t, k, nil)
	p.send(0, "t", "k", "refused")
	if err := p.acks.wait(t, 1)[0]; Classify(err) != Session || err == nil {
		t.Fatalf("got %v", err)
	}
	p.log.await(t, "kafka client replaced")
	p.send(1, "t", "k", "taken")
	if failed := p.acks.wait(t, 2); failed[1] != nil {
		t.Fatal(failed[1])
	}
}
