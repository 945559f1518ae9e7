// Package replication is the WAL source: it streams the inserts of the outbox table from a logical
// replication slot, in commit order, and tells PostgreSQL how far they are safe.
//
// A Source lives as long as the process; a session lives as long as its two connections. One
// goroutine of a session owns the replication connection: it alone reads from it and writes to it.
// The other owns the SQL connection, on which rows are settled and the server is watched. When either
// fails, both end, and a new session starts with new connections, a new decoder and a new tracker.
package replication

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/prometheus/client_golang/prometheus"

	"walrelay/checkpoint"
	"walrelay/internal/postgres"
	"walrelay/internal/source"
	"walrelay/outbox"
)

// Options are what a source needs.
type Options struct {
	Database     string // connection string
	Config       Config
	Outbox       outbox.Config
	AfterPublish checkpoint.AfterPublish
	Publisher    source.Publisher
	RowLimit     int               // bytes; a larger row is discarded while it is read
	Dial         postgres.DialFunc // nil: the network
	Log          *slog.Logger
	Registry     prometheus.Registerer
}

// Source is the stream of one table. Between sessions it remembers what the next one starts from.
type Source struct {
	cfg Config
	postgres.Outbox
	pub      source.Publisher
	rowLimit int
	log      *slog.Logger
	metrics  *metrics
	state    atomic.Pointer[State]

	saidRemoved   atomic.Bool
	saidUnlimited atomic.Bool

	// Of the sessions that are over; only Session touches it, and one session runs at a time.
	past struct {
		tracker       *checkpoint.Tracker
		history       history
		senderTimeout time.Duration
		silentEnds    int           // in a row, without progress in between
		settled       pglogrepl.LSN // what the last session had settled
		lastSettled   checkpoint.Row
		streamed      bool // one has streamed from the slot: it must not vanish
		creating      bool // a slot may exist that was never checked for rows that it misses
		alone         outbox.Position
		givenUp       map[outbox.EventID]bool
	}
}

// State is where the source stands, for readiness and metrics.
type State struct {
	Phase   Phase
	Since   time.Time
	Heard   time.Time // last message of the server
	Told    time.Time // last status that was written
	Full    bool      // Kafka has a whole window to acknowledge: until then nothing is read
	Watch   Watch     // what the last watch statement saw
	tracker *checkpoint.Tracker
}

// Phase is the part of a session's life.
type Phase string

const (
	PhaseStopped    Phase = "stopped"
	PhaseConnecting Phase = "connecting"
	PhaseStandby    Phase = "standby" // another relay holds the lock
	PhaseStreaming  Phase = "streaming"
)

// New checks the options. It opens nothing.
func New(o Options) (*Source, error) {
	table, err := postgres.NewOutbox(o.Database, o.Outbox, o.AfterPublish, o.Dial)
	if err != nil {
		return nil, err
	}
	s := &Source{
		cfg: o.Config, Outbox: table,
		pub: o.Publisher, rowLimit: o.RowLimit, log: o.Log,
	}
	s.past.senderTimeout = minSenderTimeout
	s.past.givenUp = make(map[outbox.EventID]bool)
	s.state.Store(&State{Phase: PhaseStopped, Since: time.Now()})
	s.metrics = newMetrics(o.Registry, s)
	return s, nil
}

// Session runs until the stream ends. It returns nil after soft has ended and everything that was
// handed over is settled and confirmed, and the reason otherwise. When it returns, its connections are
// closed and its goroutines gone; events that it handed over may still be with the publisher, and the
// next call must wait until those have come back.
//
// soft ends the session in order, hard at once.
func (s *Source) Session(soft, hard context.Context) error {
	s.phase(PhaseConnecting)
	defer s.phase(PhaseStopped)
	x, err := s.open(soft)
	if err != nil {
		if soft.Err() != nil {
			return nil
		}
		return err
	}
	defer x.close()
	err = x.run(soft, hard)
	s.learn(x, err)
	return err
}

// open brings a session up to the first message of its stream.
func (s *Source) open(ctx context.Context) (*session, error) {
	sql, err := postgres.Connect(ctx, s.Outbox.Database, 0)
	if err != nil {
		return nil, err
	}
	x := &session{Source: s, sql: sql}
	defer func() {
		if err != nil {
			x.close()
		}
	}()
	v, err := s.inspect(ctx, sql)
	if err != nil {
		return nil, err
	}
	repl, err := s.lead(ctx, sql, postgres.LockKey(v.TableOID, 0))
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil && x.wire == nil {
			closeReplication(repl)
		}
	}()
	id, err := pglogrepl.IdentifySystem(ctx, repl)
	if err != nil {
		err = fmt.Errorf("identify the server: %w", err)
		return nil, err
	}
	if err = s.ensure(ctx, sql, repl, v); err != nil {
		return nil, err
	}
	if err = x.prepare(ctx, repl, v, id); err != nil {
		return nil, err
	}
	if err = x.start(repl); err != nil {
		return nil, err
	}
	return x, nil
}

// lead becomes the leader of the shard, however long that takes, and returns the replication
// connection that holds the lock.
func (s *Source) lead(ctx context.Context, sql *pgx.Conn, key int64) (*pgconn.PgConn, error) {
	for {
		err := postgres.AwaitLock(ctx, sql, key, func() {
			s.phase(PhaseStandby)
			s.log.Info("standby: another relay holds the lock of this table", "table", s.Table.String())
		})
		if err != nil {
			return nil, err
		}
		s.phase(PhaseConnecting)
		repl, err := connectReplication(ctx, s.Outbox.Database, s.past.senderTimeout, func(n *pgconn.Notice) {
			s.log.Warn("PostgreSQL says", "severity", n.Severity, "message", n.Message, "detail", n.Detail)
		})
		if err != nil {
			return nil, err
		}
		won, err := takeLock(ctx, repl, key)
		if err != nil {
			closeReplication(repl)
			return nil, err
		}
		if won {
			return repl, nil
		}
		closeReplication(repl) // another standby was faster
	}
}

func closeReplication(conn *pgconn.PgConn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = conn.Close(ctx) // nothing depends on the goodbye
}

// learn takes from a session that is over what the next one must know.
func (s *Source) learn(x *session, err error) {
	p := &s.past
	settled := x.tracker.Confirmable()
	progress := settled > p.settled || p.tracker == nil
	p.tracker, p.history, p.streamed, p.settled = x.tracker, x.history, true, settled
	if x.lastSettled != (checkpoint.Row{}) {
		p.lastSettled = x.lastSettled
	}
	if Lost(err) {
		p.tracker = nil
	}
	switch {
	case progress:
		p.silentEnds, p.senderTimeout = 0, minSenderTimeout
	case endedSilently(err):
		// On PostgreSQL 14 and 15 a huge transaction of other tables is decoded without a word, and a
		// short time-out would end every session at the same place for ever (H23).
		if p.silentEnds++; p.silentEnds >= 2 && p.senderTimeout < maxSenderTimeout {
			p.silentEnds, p.senderTimeout = 0, min(2*p.senderTimeout, maxSenderTimeout)
			s.log.Info("two sessions ended without a word: giving the server more time", "wal_sender_timeout", p.senderTimeout)
		}
	}
}

// Database is the name of the database that DATABASE_URL leads to.
func (s *Source) Database() string { return s.DatabaseName() }

// Slot is the slot's name.
func (s *Source) Slot() string { return s.cfg.Slot }

// Isolate makes the next sessions hand over one event at a time up to the last that p names, so that
// what Kafka rejects is known by name.
func (s *Source) Isolate(p *source.PublishError) { s.past.alone = p.Last }

// GiveUp asks the table whether an operator has marked the row of a poison event: then the next
// sessions pass over the event instead of stopping at it. Where not, p is told what to type.
func (s *Source) GiveUp(ctx context.Context, p *source.PoisonError) (bool, error) {
	given, remedy, err := s.GivenUp(ctx, p.RowID, p.EventID)
	if remedy == "" {
		// Where there is no row to mark, only the slot can pass over the event, and over its whole transaction.
		remedy = fmt.Sprintf("SELECT pg_replication_slot_advance('%s', pg_lsn '%s' + 1), which gives up its whole transaction",
			s.cfg.Slot, pglogrepl.LSN(p.Position.LSN))
	}
	if p.Remedy = remedy; given {
		s.past.givenUp[p.EventID] = true
	}
	return given, err
}

// Progress is the position that the last session had settled, for telling progress from its absence.
func (s *Source) Progress() string { return "position " + s.past.settled.String() }

// State is where the source stands now.
func (s *Source) State() State { return *s.state.Load() }

// Stats are the counts of the running session's tracker, or of the last one's.
func (s *Source) Stats() checkpoint.Stats {
	if t := s.state.Load().tracker; t != nil {
		return t.Stats()
	}
	return checkpoint.Stats{}
}

func (s *Source) phase(p Phase) {
	s.update(func(st *State) {
		if st.Phase != p {
			st.Phase, st.Since = p, time.Now()
		}
	})
}

// update changes the published state. Both goroutines of a session do it, a few times a second.
func (s *Source) update(change func(*State)) {
	for {
		old := s.state.Load()
		next := *old
		change(&next)
		if s.state.CompareAndSwap(old, &next) {
			return
		}
	}
}

// Ready is nil while the stream is alive, or another relay is. PostgreSQL being reachable is not
// enough: a session that has not heard from its server, or could not tell it anything, is not ready.
func (s *Source) Ready() error {
	st := s.State()
	now := time.Now()
	switch st.Phase {
	case PhaseStandby:
		return nil
	case PhaseStreaming:
		if silent := now.Sub(st.Told); silent > s.cfg.StatusInterval+statusTimeout {
			return fmt.Errorf("no status was written for %v", silent.Round(time.Second))
		}
		if silent := now.Sub(st.Heard); silent > 2*minSenderTimeout && !st.Full {
			return fmt.Errorf("nothing was heard from PostgreSQL for %v", silent.Round(time.Second))
		}
		return nil
	}
	return fmt.Errorf("not streaming: %s since %v", st.Phase, now.Sub(st.Since).Round(time.Second))
}
