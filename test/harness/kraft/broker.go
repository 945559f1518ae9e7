package kraft

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"text/template"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"walrelay/internal/localdev"
	"walrelay/internal/localdev/child"
)

const (
	startLimit = 2 * time.Minute // about 5 s on two idle cores
	stopLimit  = time.Minute     // Kafka's own controlled shutdown takes about 3 s
)

// The broker's configuration, as a template.
//
//go:embed server.properties
var properties string

type settings struct {
	Port, Controller int
	Advertised       string // host:port
	Data             string
	Listeners        []Listener
	More             map[string]string
}

// Listener is one more way into a broker, beside the plain one that is always there.
type Listener struct {
	Name       string            // in capitals, as in the broker's configuration
	Protocol   string            // SSL, SASL_SSL or SASL_PLAINTEXT
	Advertised string            // host:port that clients are sent to; empty means the listener itself
	Settings   map[string]string // names without "listener.name.<name>."

	Port int // chosen by New
}

// Direct is the host:port that the listener listens on.
func (l Listener) Direct() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(l.Port)) }

// Prefix is what the names of its settings begin with.
func (l Listener) Prefix() string { return "listener.name." + strings.ToLower(l.Name) + "." }

// Option is a choice for New.
type Option func(*Broker)

// With adds a listener.
func With(l Listener) Option {
	return func(b *Broker) { b.set.Listeners = append(b.set.Listeners, l) }
}

// Setting adds a line to server.properties.
func Setting(name, value string) Option { return func(b *Broker) { b.set.More[name] = value } }

// Property sets a system property of the JVM.
func Property(name, value string) Option {
	return func(b *Broker) { b.flags = append(b.flags, "-D"+name+"="+value) }
}

func writeProperties(path string, s settings) error {
	tmpl, err := template.New("server.properties").Parse(properties)
	if err != nil {
		return fmt.Errorf("read server.properties: %w", err)
	}
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("write server.properties: %w", err)
	}
	return errors.Join(tmpl.Execute(f, s), f.Close())
}

// Broker is one Kafka node on 127.0.0.1. It keeps its ports and its data over Stop, Kill and Start,
// and ends with Close; on Linux it also ends when this process dies without that.
type Broker struct {
	install *Install
	dir     *localdev.Folder
	set     settings
	flags   []string // of the JVM

	mu struct {
		sync.Mutex
		process *child.Process
	}
}

// New starts a broker and returns when it answers. advertised is the host:port that clients are
// sent to, for a proxy in front of it; empty means the broker itself.
func New(ctx context.Context, install *Install, advertised string, opts ...Option) (*Broker, error) {
	dir, err := localdev.NewFolder("", "kafka")
	if err != nil {
		return nil, err
	}
	b := &Broker{install: install, dir: dir, set: settings{More: map[string]string{}}}
	for _, o := range opts {
		o(b)
	}
	if err = b.prepare(advertised); err == nil {
		err = b.Start(ctx)
	}
	if err != nil {
		err = fmt.Errorf("start Apache Kafka %s: %w\n%s", Version, err, b.lastWords())
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

// lastWords is the end of the log, which Close removes.
func (b *Broker) lastWords() []byte {
	const enough = 4 << 10
	text, err := os.ReadFile(b.LogPath())
	if err != nil {
		return nil // it never came so far
	}
	return text[max(0, len(text)-enough):]
}

func (b *Broker) prepare(advertised string) error {
	ports, err := freePorts(2 + len(b.set.Listeners))
	if err != nil {
		return err
	}
	b.set.Port, b.set.Controller, b.set.Advertised, b.set.Data = ports[0], ports[1], advertised, filepath.Join(b.dir.Path, "data")
	for i := range b.set.Listeners {
		l := &b.set.Listeners[i]
		l.Port = ports[2+i]
		if l.Advertised == "" {
			l.Advertised = l.Direct()
		}
	}
	if advertised == "" {
		b.set.Advertised = b.Direct()
	}
	if err := os.CopyFS(b.set.Data, os.DirFS(b.install.formatted)); err != nil {
		return fmt.Errorf("copy the formatted data folder: %w", err)
	}
	return writeProperties(filepath.Join(b.dir.Path, "server.properties"), b.set)
}

// freePorts holds all of them at once, so that they differ.
func freePorts(n int) ([]int, error) {
	var ports []int
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("find a free port: %w", err)
		}
		defer l.Close()
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}

// Start starts the broker again after Stop or Kill and returns when it answers.
func (b *Broker) Start(ctx context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mu.process != nil && b.mu.process.Running() {
		return fmt.Errorf("the broker runs already, as pid %d", b.mu.process.Pid())
	}
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	log, err := os.OpenFile(b.LogPath(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("open the log: %w", err)
	}
	defer log.Close() // the child has its own copy
	flags := append([]string{"-Xms128m", "-Xmx512m", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20",
		"-Djava.awt.headless=true", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-Dorg.slf4j.simpleLogger.showDateTime=true"}, b.flags...)
	cmd := exec.Command(b.install.java, append(flags,
		"-cp", filepath.Join(b.install.jars, "*"), "kafka.Kafka", filepath.Join(b.dir.Path, "server.properties"))...)
	cmd.Stdout, cmd.Stderr, cmd.Dir = log, log, b.dir.Path
	if b.mu.process, err = child.Start(cmd, nil, syscall.SIGKILL); err != nil {
		return err
	}
	return b.waitLocked(ctx)
}

// waitLocked returns when the broker has registered itself, which is when topics can be made.
func (b *Broker) waitLocked(ctx context.Context) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(b.Direct()))
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	defer client.Close()
	for {
		try, cancel := context.WithTimeout(ctx, 2*time.Second)
		meta, err := kadm.NewClient(client).BrokerMetadata(try)
		cancel()
		if err == nil && len(meta.Brokers) > 0 {
			return nil
		}
		select {
		case <-b.mu.process.Done():
			return fmt.Errorf("the broker ended before it answered: %v; its log is %s", b.mu.process.Err(), b.LogPath())
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("the broker does not answer: %w", ctx.Err()), b.mu.process.Kill())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// Stop is Kafka's own shutdown; a broker that does not end within a minute is killed.
func (b *Broker) Stop() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mu.process == nil {
		return nil
	}
	return b.mu.process.Stop(syscall.SIGTERM, stopLimit)
}

// Kill ends the broker as a crash does.
func (b *Broker) Kill() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mu.process == nil {
		return nil
	}
	return b.mu.process.Kill()
}

// Signal is for tests that stop the whole process and let it go on.
func (b *Broker) Signal(sig os.Signal) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.process.Signal(sig)
}

// Close kills the broker, nobody reads its data again, and removes its folder.
func (b *Broker) Close() error { return errors.Join(b.Kill(), b.dir.Remove()) }

// Addr is what clients are given: the advertised host:port.
func (b *Broker) Addr() string { return b.set.Advertised }

// Direct is the host:port that the broker listens on.
func (b *Broker) Direct() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(b.set.Port)) }

// Listener is the host:port that clients of a listener of With are given, and the one that it listens on.
func (b *Broker) Listener(name string) (advertised, direct string, ok bool) {
	for _, l := range b.set.Listeners {
		if l.Name == name {
			return l.Advertised, l.Direct(), true
		}
	}
	return "", "", false
}

// LogPath is the broker's log, of all its starts.
func (b *Broker) LogPath() string { return filepath.Join(b.dir.Path, "kafka.log") }
