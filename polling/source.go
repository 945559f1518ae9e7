// Package polling is the source for servers without logical replication: it asks the table for rows
// that are not published, in the order of their ids.
//
// A Source lives as long as the process; a session lives as long as its one connection. One goroutine
// owns the connection: it holds the table's lock on it, reads a batch, hands it over, waits until Kafka
// has all of it, settles the rows, and asks again. The next batch is read when the last one is settled,
// so nothing has to be remembered between sessions: what is unmarked in the table is what is left.
package polling

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
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
	RowLimit     int               // bytes; payload and headers of a larger row are not read
	Dial         postgres.DialFunc // nil: the network
	Log          *slog.Logger
	Registry     prometheus.Registerer
}

// Source reads one table.
type Source struct {
	cfg Config
	postgres.Outbox
	pub      source.Publisher
	rowLimit int
	log      *slog.Logger
	metrics  *metrics
	state    atomic.Pointer[State]

	saidUnindexed bool // of Session alone
	saidDeaf      bool
	saidRemoved   bool

	// Of the sessions that are over; only Session and what the relay calls between two touch it.
	past struct {
		settled uint64 // rows settled so far
		last    int64  // highest row id that the last session handed over
		alone   int64  // rows up to this id are sent one at a time; 0: none
	}
}

// State is where the source stands, for readiness and metrics.
type State struct {
	Phase Phase
	Since time.Time
	Heard time.Time // last answer of the server
	Deaf  bool      // NOTIFY does not wake it: it polls
	Full  bool      // Kafka has a whole batch to acknowledge

	batch     *batch // the one on its way
	unsettled int
}

// Phase is the part of a session's life.
type Phase string

const (
	PhaseStopped    Phase = "stopped"
	PhaseConnecting Phase = "connecting"
	PhaseStandby    Phase = "standby" // another relay holds the lock
	PhasePolling    Phase = "polling"
)

// New checks the options, of which AfterPublish is mark or delete. It opens nothing.
func New(o Options) (*Source, error) {
	table, err := postgres.NewOutbox(o.Database, o.Outbox, o.AfterPublish, o.Dial)
	if err != nil {
		return nil, err
	}
	s := &Source{
		cfg: o.Config, Outbox: table,
		pub: o.Publisher, rowLimit: o.RowLimit, log: o.Log,
	}
	s.state.Store(&State{Phase: PhaseStopped, Since: time.Now()})
	s.metrics = newMetrics(o.Registry, s)
	return s, nil
}

// Session runs until soft ends (nil: everything that was handed over is settled) or something breaks.
// hard ends it at once. When it returns its connection is closed; events that it handed over may still
// be with the publisher, and the next call must wait until those have come back.
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
	return x.run(soft, hard)
}

// open brings a session up to its first poll: the connection that holds the lock.
func (s *Source) open(ctx context.Context) (_ *session, err error) {
	conn, heard, err := s.connect(ctx)
	if err != nil {
		return nil, err
	}
	x := &session{Source: s, conn: conn, heard: heard}
	defer func() {
		if err != nil {
			x.close()
		}
	}()
	v, err := s.Inspect(ctx, conn)
	if err != nil {
		return nil, err
	}
	if err = x.lead(ctx, v.TableOID); err != nil {
		return nil, err
	}
	if err = x.prepare(ctx, v); err != nil {
		return nil, err
	}
	return x, nil
}

// connect opens the session's connection. heard is set by each notification that it gets.
func (s *Source) connect(ctx context.Context) (conn *pgx.Conn, heard *bool, err error) {
	heard = new(bool)
	db := s.Outbox.Database.Copy()
	db.OnNotification = notifier(heard)
	conn, err = postgres.Connect(ctx, db, idleTimeout)
	return conn, heard, err
}

// Database is the name of the database that DATABASE_URL leads to.
func (s *Source) Database() string { return s.DatabaseName() }

// Isolate makes the next sessions hand over one event at a time, up to the last that was handed over,
// so that what Kafka rejects is known by name.
func (s *Source) Isolate(*source.PublishError) { s.past.alone = s.past.last }

// GiveUp asks the table whether an operator has marked the row of a poison event: it is not read again
// then. Where not, p is told what to type.
func (s *Source) GiveUp(ctx context.Context, p *source.PoisonError) (given bool, err error) {
	given, p.Remedy, err = s.GivenUp(ctx, p.RowID, p.EventID)
	return given, err
}

// Progress grows with what is settled, for telling progress from its absence.
func (s *Source) Progress() string { return strconv.FormatUint(s.past.settled, 10) + " rows settled" }

// State is where the source stands now.
func (s *Source) State() State { return *s.state.Load() }

// Interval is how often an idle table is asked.
func (s *Source) Interval() time.Duration { return s.cfg.Interval }

// Counts are the rows on their way.
func (s *Source) Counts() source.Counts {
	st := s.state.Load()
	c := source.Counts{Unsettled: st.unsettled}
	if st.batch != nil {
		c.InFlight, c.Bytes = st.batch.inFlight()
		c.Unsettled += st.batch.acknowledged()
	}
	return c
}

func (s *Source) phase(p Phase) {
	s.update(func(st *State) {
		if st.Phase != p {
			st.Phase, st.Since = p, time.Now()
		}
	})
}

// update changes the published state. Only the session's goroutine does it.
func (s *Source) update(change func(*State)) {
	next := *s.state.Load()
	change(&next)
	s.state.Store(&next)
}

// Ready is nil while the table is polled, or another relay does it.
func (s *Source) Ready() error {
	st := s.State()
	now := time.Now()
	switch st.Phase {
	case PhaseStandby:
		return nil
	case PhasePolling:
		if silent := now.Sub(st.Heard); silent > s.cfg.Interval+idleTimeout {
			return fmt.Errorf("nothing was heard from PostgreSQL for %v", silent.Round(time.Second))
		}
		return nil
	}
	return fmt.Errorf("not polling: %s since %v", st.Phase, now.Sub(st.Since).Round(time.Second))
}
