package compare

import (
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"

	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/twmb/franz-go/pkg/kadm"
	"golang.org/x/sync/errgroup"

	"walrelay/internal/localdev/child"
	"walrelay/internal/usage"
	"walrelay/migrations"
	"walrelay/outbox"
)

// setup is what all measurements of a run share.
type setup struct {
	o      Options
	conn   *pgx.Conn
	admin  *kadm.Client
	schema string
	suffix string // of every name
}

// measurement is one mode; without a relay it is the baseline.
type measurement struct {
	setup
	mode    *Mode
	table   outbox.Table
	slot    string
	topic   string
	pad     string
	journal *journal
	log     said // by the relay
}

// said is what a process says on standard error.
type said struct {
	mu   sync.Mutex
	text strings.Builder
}

func (s *said) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(b)
}

func (s *said) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// outboxColumns are the default ones: the table is our own, whatever the environment calls its columns.
func outboxColumns() outbox.Columns {
	return outbox.Columns{ID: "id", EventID: "event_id", AggregateType: "aggregate_type", AggregateID: "aggregate_id", EventType: "event_type",
		Payload: "payload", Headers: "headers", Topic: "topic", PartitionKey: "partition_key", CreatedAt: "created_at", PublishedAt: "published_at"}
}

// ownColumns takes back what the environment calls the columns of its own table: empty is the default.
func ownColumns() []string {
	var unset []string
	for _, name := range []string{"ID", "EVENT_ID", "AGGREGATE_TYPE", "AGGREGATE_ID", "EVENT_TYPE", "PAYLOAD", "HEADERS", "TOPIC", "PARTITION_KEY", "CREATED_AT", "PUBLISHED_AT"} {
		unset = append(unset, "OUTBOX_COLUMN_"+name+"=")
	}
	return unset
}

func (s setup) measure(ctx context.Context, mode *Mode) (result Result, err error) {
	name := "walrelay_compare_" + s.suffix
	m := &measurement{setup: s, mode: mode, table: outbox.Table{Schema: s.schema, Name: name}, slot: name, pad: padding(s.o.Payload), journal: newJournal()}
	if mode != nil {
		m.topic = "walrelay.compare." + s.suffix + "." + strings.ReplaceAll(mode.Name, "+", "-")
	}
	defer func() { err = errors.Join(err, m.drop(context.WithoutCancel(ctx))) }()
	if err := m.create(ctx); err != nil {
		return result, err
	}
	if mode == nil {
		return m.baseline(ctx)
	}
	return m.relayed(ctx)
}

// create makes the table and what the mode needs beside it.
func (m *measurement) create(ctx context.Context) error {
	files, err := migrations.All(migrations.Options{Table: m.table, Columns: outboxColumns(), Publication: m.slot})
	if err != nil {
		return err
	}
	wanted := map[string]bool{"0001_outbox": true, "0002_publication": m.mode != nil && m.mode.slot, "0003_notify": m.mode != nil && m.mode.notify}
	if wanted["0002_publication"] {
		if err := m.streamable(ctx); err != nil {
			return err
		}
	}
	for _, f := range files {
		if !wanted[f.Name] {
			continue
		}
		if _, err := m.conn.PgConn().Exec(ctx, f.SQL).ReadAll(); err != nil {
			if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code == "42501" && f.Name != "0001_outbox" {
				return &unavailableError{"the user of DATABASE_URL may not make it: " + pg.Message}
			}
			return fmt.Errorf("create %s: %w", f.Makes, err)
		}
	}
	if m.topic == "" {
		return nil
	}
	if _, err := m.admin.CreateTopic(ctx, -1, -1, nil, m.topic); err != nil {
		return fmt.Errorf("create topic %s: %w", m.topic, err)
	}
	return nil
}

// streamable says why a slot cannot be had, where it cannot.
func (m *measurement) streamable(ctx context.Context) error {
	var level string
	var may bool
	err := m.conn.QueryRow(ctx, `SELECT current_setting('wal_level'), rolreplication OR rolsuper OR (SELECT coalesce(bool_or(pg_has_role(oid, 'MEMBER')), false)
		FROM pg_roles WHERE rolname = 'rds_replication') FROM pg_roles WHERE rolname = current_user`).Scan(&level, &may)
	switch {
	case err != nil:
		return fmt.Errorf("look whether a slot can be had: %w", err)
	case level != "logical":
		return &unavailableError{"wal_level is " + level + ", not logical"}
	case !may:
		return &unavailableError{"the user of DATABASE_URL has no REPLICATION right"}
	}
	return nil
}

// drop takes everything away again, whatever of it was made.
func (m *measurement) drop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, dropLimit)
	defer cancel()
	conn, err := pgx.Connect(ctx, m.o.Database) // the other may have been broken off in the middle of a statement
	if err != nil {
		return fmt.Errorf("drop table %s, slot and publication %s: %w", m.table, m.slot, err)
	}
	defer conn.Close(ctx)
	errs := []error{m.dropSlot(ctx, conn)}
	for _, sql := range []string{
		"DROP PUBLICATION IF EXISTS " + pgx.Identifier{m.slot}.Sanitize(),
		"DROP TABLE IF EXISTS " + m.table.SQL(),
		"DROP FUNCTION IF EXISTS " + pgx.Identifier{m.table.Schema, m.table.Name + "_notify"}.Sanitize(),
	} {
		if _, err := conn.Exec(ctx, sql); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", sql, err))
		}
	}
	if m.topic != "" {
		if resp, err := m.admin.DeleteTopics(ctx, m.topic); err != nil {
			errs = append(errs, fmt.Errorf("delete topic %s: %w", m.topic, err))
		} else if err := resp.Error(); err != nil && !errors.Is(err, kerr.UnknownTopicOrPartition) {
			errs = append(errs, fmt.Errorf("delete topic %s: %w", m.topic, err))
		}
	}
	return errors.Join(errs...)
}

// dropSlot waits until the relay's walsender has left it.
func (m *measurement) dropSlot(ctx context.Context, conn *pgx.Conn) error {
	for {
		_, err := conn.Exec(ctx, "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = $1", m.slot)
		pg, ok := errors.AsType[*pgconn.PgError](err)
		switch {
		case err == nil, ok && pg.Code == "42501" && m.mode != nil && !m.mode.slot, ok && pg.Code == "42501" && m.mode == nil:
			return nil
		case !ok || pg.Code != "55006":
			return fmt.Errorf("drop slot %s: %w", m.slot, err)
		}
		if err := until(ctx, time.Now().Add(50*time.Millisecond)); err != nil {
			return fmt.Errorf("drop slot %s, which is in use: %w", m.slot, err)
		}
	}
}

// baseline is what the writers cost by themselves, for a quarter of the time.
func (m *measurement) baseline(ctx context.Context) (Result, error) {
	before, err := m.count(ctx)
	if err != nil {
		return Result{}, err
	}
	from, err := m.position(ctx)
	if err != nil {
		return Result{}, err
	}
	if err := m.write(ctx, time.Now(), max(2*time.Second, m.o.For/4)); err != nil {
		return Result{}, err
	}
	to, err := m.position(ctx)
	if err != nil {
		return Result{}, err
	}
	r := Result{Mode: "writers alone", Events: m.journal.count()}
	r.Cost, err = m.spent(ctx, before)
	r.Cost.WAL = float64(to-from) / float64(max(1, r.Events))
	return r, err
}

// relayed starts the relay, has the load pass through it, and stops it.
func (m *measurement) relayed(ctx context.Context) (result Result, err error) {
	before, err := m.count(ctx)
	if err != nil {
		return result, err
	}
	p, trace, err := m.start()
	if err != nil {
		return result, err
	}
	defer p.Kill()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var watching errgroup.Group
	consuming, stopConsumer := context.WithCancel(ctx)
	watching.Go(func() error { defer trace.Close(); return readTrace(trace, m.journal) })
	watching.Go(func() error { return m.consume(consuming) })
	stop := func() error {
		stopConsumer()
		return errors.Join(p.Stop(syscall.SIGTERM, 20*time.Second), watching.Wait())
	}
	result, err = m.load(ctx, p)
	if serr := stop(); err == nil && serr != nil && p.Err() != nil {
		err = fmt.Errorf("the relay ended with %w:\n%s", p.Err(), m.log.String())
	}
	if err != nil {
		return result, err
	}
	wal := result.Cost.WAL
	result.Cost, err = m.spent(ctx, before)
	result.Cost.WAL = wal
	result.fill(m.journal, result.from)
	return result, err
}

// start runs the relay with its trace in a pipe.
func (m *measurement) start() (*child.Process, *os.File, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	defer write.Close() // the child has its own
	cmd := exec.Command(m.o.Relay[0], m.o.Relay[1:]...)
	cmd.ExtraFiles = []*os.File{write}
	cmd.Stdout, cmd.Stderr = nil, &m.log
	cmd.Env = append(append(append(append([]string(nil), m.o.Environ...), ownColumns()...),
		"DATABASE_URL="+m.o.Database, "DATABASE_URL_FILE=", "KAFKA_BROKERS="+m.o.Brokers, "OUTBOX_TABLE="+m.table.String(),
		"REPLICATION_SLOT="+m.slot, "REPLICATION_PUBLICATION="+m.slot, "ROUTER_TOPIC="+m.topic, "ROUTER_TOPIC_MAP=",
		"RELAY_AFTER_PUBLISH=mark", "OUTBOX_RETENTION=", "HTTP_ADDR=off", "LOG_LEVEL=warn", "LOG_FORMAT=text"), m.mode.env...)
	p, err := child.Start(cmd, nil, syscall.SIGKILL)
	if err != nil {
		read.Close()
		return nil, nil, fmt.Errorf("start the relay: %w", err)
	}
	return p, read, nil
}

// load is the warm-up, which ends when its first event has come through, and the measurement.
func (m *measurement) load(ctx context.Context, p *child.Process) (r Result, err error) {
	if err := m.warm(ctx, p); err != nil {
		return r, err
	}
	from, err := m.position(ctx)
	if err != nil {
		return r, err
	}
	cpu, _ := usage.CPU(p.Pid()) // where it cannot be told, it is 0 and left out
	seen := m.journal.count()
	began := time.Now()
	r.from = began
	written := make(chan error, 1)
	var writing sync.WaitGroup
	defer writing.Wait()
	load, giveUp := context.WithCancel(ctx)
	defer giveUp()
	writing.Go(func() { written <- m.write(load, began, m.o.For) })
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for waiting := true; waiting; {
		select {
		case err := <-written:
			if err != nil {
				return r, err
			}
			waiting = false
		case <-p.Done():
			return r, fmt.Errorf("the relay has ended: %v\n%s", p.Err(), m.log.String())
		case <-ticker.C:
			m.o.Status(fmt.Sprintf("  %s: %d events in %d of %d s, %d on their way", m.mode.Name, m.journal.count()-seen,
				int(time.Since(began).Seconds()), int(m.o.For.Seconds()), m.journal.waiting()))
		}
	}
	if err := m.arrive(ctx, p); err != nil {
		return r, err
	}
	took := time.Since(began)
	after, _ := usage.CPU(p.Pid())
	r.Mode, r.What, r.Events = m.mode.Name, m.mode.what, m.journal.count()-seen
	r.Rate = float64(r.Events) / took.Seconds()
	r.CPU = float64((after - cpu).Microseconds()) / float64(max(1, r.Events))
	r.Peak, _ = usage.Peak(p.Pid())
	to, err := m.position(ctx)
	r.Cost.WAL = float64(to-from) / float64(max(1, r.Events))
	return r, err
}

// warm writes until something has come through: the relay is ready then, and everybody has connected.
func (m *measurement) warm(ctx context.Context, p *child.Process) error {
	ctx, cancel := context.WithTimeout(ctx, readyLimit)
	defer cancel()
	conn, err := pgx.Connect(ctx, m.o.Database)
	if err != nil {
		return fmt.Errorf("connect a writer: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if m.mode.slot {
		if err := m.awaitSlot(ctx, p); err != nil {
			return err // the slot does not know what was written before it
		}
	}
	for end := time.Now().Add(warmUp); time.Now().Before(end); {
		if err := m.commit(ctx, conn, 0); err != nil {
			return err
		}
		if err := until(ctx, time.Now().Add(20*time.Millisecond)); err != nil {
			return err
		}
	}
	return m.arrive(ctx, p)
}

// awaitSlot waits until the relay streams.
func (m *measurement) awaitSlot(ctx context.Context, p *child.Process) error {
	for {
		var active bool
		if err := m.conn.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_replication_slots WHERE slot_name = $1 AND active)`, m.slot).Scan(&active); err != nil {
			return fmt.Errorf("look at the slot: %w", err)
		}
		if active {
			return nil
		}
		select {
		case <-p.Done():
			return fmt.Errorf("the relay has ended: %v\n%s", p.Err(), m.log.String())
		case <-ctx.Done():
			return fmt.Errorf("the relay does not stream: %w\n%s", ctx.Err(), m.log.String())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// arrive waits until every event is consumed.
func (m *measurement) arrive(ctx context.Context, p *child.Process) error {
	limit := time.After(lateLimit)
	for m.journal.waiting() > 0 {
		select {
		case <-m.journal.news:
		case <-p.Done():
			return fmt.Errorf("the relay has ended: %v\n%s", p.Err(), m.log.String())
		case <-ctx.Done():
			return ctx.Err()
		case <-limit:
			return fmt.Errorf("%d events have not arrived within %v:\n%s", m.journal.waiting(), lateLimit, m.log.String())
		}
	}
	return nil
}
