package localdev

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"walrelay/internal/localdev/child"
)

const (
	startLimit = 60 * time.Second // initdb, start and crash recovery, on a slow machine
	closeLimit = 10 * time.Second // a shutdown that nobody holds up takes well below a second

	// A new server tries this many ports: a free one may be taken before the server has it.
	firstTries = 3
	// A restarted one keeps its port and is tried longer: after Kill the old backends hold the
	// shared memory until each has noticed that the postmaster is gone.
	laterTries = 100
	tryPause   = 100 * time.Millisecond
)

// Options are the choices for one throw-away server.
type Options struct {
	Binaries Binaries
	Settings map[string]string // added to, or instead of, the settings that this package chooses
	NoSync   bool              // fsync=off: faster, and a crash of the machine loses it
	Parent   string            // folder to work in; empty: a temporary one
	Keep     bool              // leave data and log in place after Close
}

// Server is one PostgreSQL on 127.0.0.1 and on a unix socket, with superuser postgres and no
// password. It ends with Close; on Linux it also ends when this process dies without that.
// Methods may be called from several goroutines; those that start and stop it take turns.
type Server struct {
	binaries Binaries
	as       *child.Account
	keep     bool
	dir      *Folder // holds the data, the log and, where its path is short enough, the socket
	socket   *Folder // holds the socket

	mu struct {
		sync.Mutex
		settings map[string]string
		port     int
		answered bool           // the port is ours: it stays the same from now on
		process  *child.Process // the last postmaster; nil before the first start
	}
}

// Mode is how a server stops: what happens to the clients that are connected.
type Mode syscall.Signal

const (
	Smart     = Mode(syscall.SIGTERM) // waits for all clients to leave
	Fast      = Mode(syscall.SIGINT)  // ends clients, but waits until walsenders are confirmed
	Immediate = Mode(syscall.SIGQUIT) // like a crash: the next start recovers
)

func (m Mode) String() string {
	switch m {
	case Smart:
		return "smart"
	case Fast:
		return "fast"
	default:
		return "immediate"
	}
}

// New initialises a data folder and starts a server on it. It returns when the server answers, at
// most a minute later. Where this process is root the server runs as user nobody.
func New(ctx context.Context, opts Options) (*Server, error) {
	as, err := child.Unprivileged()
	if err != nil {
		return nil, err
	}
	s := &Server{binaries: opts.Binaries, as: as, keep: opts.Keep}
	s.mu.settings = map[string]string{}
	if opts.NoSync {
		s.mu.settings["fsync"] = "off"
	}
	maps.Copy(s.mu.settings, opts.Settings)

	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	if err = s.initialise(ctx, opts.Parent); err == nil {
		err = s.Start(ctx)
	}
	if err != nil {
		s.keep = false
		return nil, errors.Join(fmt.Errorf("start %s: %w", opts.Binaries, err), s.Close())
	}
	return s, nil
}

// defaultSettings let logical replication work and leave room for tests that run side by side.
func defaultSettings() map[string]string {
	return map[string]string{
		"listen_addresses":          "127.0.0.1",
		"wal_level":                 "logical",
		"max_slot_wal_keep_size":    "20GB", // the relay warns where there is no limit
		"max_replication_slots":     "20",
		"max_wal_senders":           "20",
		"max_prepared_transactions": "10",
		"shared_buffers":            "128MB",
		"log_line_prefix":           "%m [%p] %q%u@%d ",
	}
}

// Configure sets settings for the next start.
func (s *Server) Configure(settings map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.Copy(s.mu.settings, settings)
}

// Start starts the server again after Stop or Kill, with the same data on the same port, and
// returns when it answers: recovery is part of the wait, a minute the bound.
func (s *Server) Start(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.runningLocked() {
		return fmt.Errorf("PostgreSQL runs already, as pid %d", s.mu.process.Pid())
	}
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	tries := firstTries
	if s.mu.answered {
		tries = laterTries
	}
	for try := 1; ; try++ {
		exited, err := s.startLocked(ctx)
		if !exited || try == tries {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(tryPause):
		}
	}
}

// startLocked makes one try. exited says that the server ended by itself before it answered.
func (s *Server) startLocked(ctx context.Context) (exited bool, err error) {
	if !s.mu.answered {
		if s.mu.port, err = freePort(); err != nil {
			return false, err
		}
	}
	args := []string{"-D", s.data(), "-k", s.socket.Path, "-p", strconv.Itoa(s.mu.port)}
	for name, value := range s.mu.settings {
		args = append(args, "-c", name+"="+value)
	}
	process, err := s.spawn(exec.Command(filepath.Join(s.binaries.Dir, "postgres"), args...), syscall.SIGQUIT)
	if err != nil {
		return false, err
	}
	s.mu.process = process
	for {
		err := s.ping(ctx)
		if err == nil {
			s.mu.answered = true
			return false, nil
		}
		select {
		case <-process.Done():
			return true, fmt.Errorf("PostgreSQL ended before it answered: %v\n%s", process.Err(), s.LogTail())
		case <-ctx.Done():
			return false, errors.Join(fmt.Errorf("PostgreSQL does not answer: %w\n%s", err, s.LogTail()), process.Kill())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// ping asks over the unix socket: its path is this server's alone, a port might be somebody else's.
func (s *Server) ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.socketURL("postgres", s.mu.port))
	if err != nil {
		return err
	}
	return errors.Join(conn.Ping(ctx), conn.Close(ctx))
}

// Stop asks the server to stop and waits for it until ctx ends, at most a minute. A server that is
// stopped already is not an error.
func (s *Server) Stop(ctx context.Context, mode Mode) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.runningLocked() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	begin := time.Now()
	if err := s.mu.process.Signal(syscall.Signal(mode)); err != nil {
		return err
	}
	if err := s.mu.process.Wait(ctx); err != nil {
		return fmt.Errorf("PostgreSQL (pid %d) has not stopped %s after a %s shutdown, a client or a walsender may hold it up: %w\n%s",
			s.mu.process.Pid(), time.Since(begin).Round(time.Millisecond), mode, err, s.LogTail())
	}
	return nil
}

// Restart is Stop, then Start.
func (s *Server) Restart(ctx context.Context, mode Mode) error {
	if err := s.Stop(ctx, mode); err != nil {
		return err
	}
	return s.Start(ctx)
}

// Kill ends the postmaster with SIGKILL; its backends end when they notice.
func (s *Server) Kill() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.process == nil {
		return nil
	}
	return s.mu.process.Kill()
}

// Close stops the server and removes its folder, unless it is to be kept. It takes seconds at most:
// data that nobody will read again needs no orderly shutdown. Close may be called twice.
func (s *Server) Close() error {
	mode := Immediate
	if s.keep {
		mode = Fast
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
	defer cancel()
	var errs []error
	if err := s.Stop(ctx, mode); err != nil {
		errs = append(errs, err, s.Kill())
	}
	return errors.Join(append(errs, s.leave())...)
}

func (s *Server) runningLocked() bool { return s.mu.process != nil && s.mu.process.Running() }

// Running says whether the server's postmaster was alive at the moment of the call.
func (s *Server) Running() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.runningLocked()
}

// Pid is the postmaster's.
func (s *Server) Pid() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.process.Pid()
}

// Port is the TCP port on 127.0.0.1. It survives restarts.
func (s *Server) Port() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.port
}

// Binaries are the ones that the server runs from.
func (s *Server) Binaries() Binaries { return s.binaries }

// URL connects over TCP, as DATABASE_URL takes it.
func (s *Server) URL(database string) string {
	u := url.URL{
		Scheme: "postgres", User: url.User("postgres"), Path: "/" + database, RawQuery: "sslmode=disable",
		Host: net.JoinHostPort("127.0.0.1", strconv.Itoa(s.Port())),
	}
	return u.String()
}

// SocketURL connects over the unix socket, as DATABASE_URL takes it.
func (s *Server) SocketURL(database string) string { return s.socketURL(database, s.Port()) }

func (s *Server) socketURL(database string, port int) string {
	query := url.Values{"host": {s.socket.Path}, "port": {strconv.Itoa(port)}}
	u := url.URL{Scheme: "postgres", User: url.User("postgres"), Path: "/" + database, RawQuery: query.Encode()}
	return u.String()
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}
