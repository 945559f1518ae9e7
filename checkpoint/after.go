package checkpoint

// AfterPublish says what happens to a row once Kafka has it.
type AfterPublish string

const (
	Mark   AfterPublish = "mark"   // published_at is set
	Delete AfterPublish = "delete" // the row is removed
	Keep   AfterPublish = "keep"   // nothing is written
)

// Valid says whether it is one of the three.
func (a AfterPublish) Valid() bool { return a == Mark || a == Delete || a == Keep }
