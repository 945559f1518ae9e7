package kraft

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"walrelay/internal/localdev"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The broker has its topics and records again after each way to end it.
func TestBrokerComesBackWithItsRecords(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a server: not with -short")
	}
	install, err := Find(t.Context(), localdev.Config{Cache: os.Getenv("WALRELAY_CACHE")}, os.Getenv("HARNESS_FETCH") != "", nil)
	if errors.Is(err, ErrUnavailable) {
		t.Skipf("NOT RUN: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	b, err := New(t.Context(), install, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("answered after %s", time.Since(begin).Round(time.Millisecond))
	defer func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	client, err := kgo.NewClient(kgo.SeedBrokers(b.Addr()), kgo.RequiredAcks(kgo.AllISRAcks()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	if _, err := admin.CreateTopic(ctx, 1, 1, nil, "orders"); err != nil {
		t.Fatal(err)
	}
	for i, end := range []func() error{b.Stop, b.Kill} {
		if err := client.ProduceSync(ctx, &kgo.Record{Topic: "orders", Value: []byte("kept")}).FirstErr(); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		if err := end(); err != nil {
			t.Fatal(err)
		}
		ended := time.Since(begin)
		if err := b.Start(ctx); err != nil {
			t.Fatal(err)
		}
		t.Logf("ended after %s, back after %s", ended.Round(time.Millisecond), time.Since(begin).Round(time.Millisecond))
		offsets, err := admin.ListEndOffsets(ctx, "orders")
		if err != nil {
			t.Fatal(err)
		}
		if got, _ := offsets.Lookup("orders", 0); got.Offset != int64(i+1) {
			t.Errorf("end offset %d, want %d (%v)", got.Offset, i+1, got.Err)
		}
	}
}
