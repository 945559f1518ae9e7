package localdev

import (
	"context"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// A broker on the same folder and port goes on where the last one ended.
func TestBrokerComesBackWithItsRecords(t *testing.T) {
	dir := t.TempDir()
	first, err := StartBroker(BrokerOptions{AutoCreate: true, DataDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	client, err := kgo.NewClient(kgo.SeedBrokers(first.Addr()), kgo.AllowAutoTopicCreation(), kgo.ConsumeTopics("orders"))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if err := client.ProduceSync(ctx, &kgo.Record{Topic: "orders", Value: []byte("kept")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	first.Close()

	second, err := StartBroker(BrokerOptions{Port: first.Port(), DataDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	if second.Addr() != first.Addr() {
		t.Fatalf("came back on %s, was on %s", second.Addr(), first.Addr())
	}
	for ctx.Err() == nil {
		fetches := client.PollFetches(ctx)
		for _, r := range fetches.Records() {
			if string(r.Value) != "kept" {
				t.Errorf("consumed %q", r.Value)
			}
			return
		}
	}
	t.Error("the record did not come back")
}
