package sink

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// The hashes are those of Kafka's own test (clients/src/test/java/org/apache/kafka/common/utils/UtilsTest.java,
// testMurmur2); a partition is the hash without its sign, modulo the number of partitions.
func TestPartitionerIsJavas(t *testing.T) {
	for key, hash := range map[string]int32{
		"21":                         -973932308,
		"foobar":                     -790332482,
		"a-little-bit-long-string":   -985981536,
		"a-little-bit-longer-string": -1486304829,
		"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
		"abc": 479470107,
	} {
		for _, n := range []int{1, 2, 3, 6, 12, 100} {
			p := partitioner().ForTopic("t").(kgo.TopicBackupPartitioner)
			r := &kgo.Record{Key: []byte(key)}
			if !p.RequiresConsistency(r) {
				t.Fatalf("key %q may change its partition", key)
			}
			if got, want := p.PartitionByBackup(r, n, nil), int(hash&0x7fffffff)%n; got != want {
				t.Errorf("key %q of %d partitions: %d, want %d", key, n, got, want)
			}
		}
	}
}

func TestBackoffStaysInItsBounds(t *testing.T) {
	for failures := range 100 {
		if d := backoff(failures); d < 40*time.Millisecond || d > 1200*time.Millisecond {
			t.Errorf("after %d failures: %v", failures, d)
		}
	}
	if d := backoff(1); d > 60*time.Millisecond {
		t.Errorf("first: %v", d)
	}
	if d := backoff(50); d < 800*time.Millisecond {
		t.Errorf("last: %v", d)
	}
}
