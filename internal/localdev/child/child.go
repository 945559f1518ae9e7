// Package child runs a server as a child process that cannot outlive this one, as an unprivileged
// user where this process is root.
package child

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"time"
)

// Process is a child that was started and is reaped exactly once. After Done is closed the process
// is gone, and its goroutine with it.
type Process struct {
	cmd  *exec.Cmd
	done chan struct{}
	err  error // how it ended; to be read after done is closed
}

// Start starts cmd in a process group of its own, so that Ctrl-C in a terminal reaches this process
// only and the child is stopped when we say so. On Linux the kernel sends it orphaned, when this
// process dies without having stopped it. A nil account means: as this process. Standard output and
// error must be nil or an *os.File, so that a grandchild that holds them open cannot delay the end.
func Start(cmd *exec.Cmd, as *Account, orphaned os.Signal) (*Process, error) {
	if err := setAttributes(cmd, as, orphaned); err != nil {
		return nil, err
	}
	p := &Process{cmd: cmd, done: make(chan struct{})}
	started := make(chan error, 1)
	go p.run(started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	return p, nil
}

// run keeps its thread until the child is gone: Linux ties the death signal to the thread that
// forked, and a thread that the runtime retires early would take the server with it.
func (p *Process) run(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(p.done)
	if err := p.cmd.Start(); err != nil {
		started <- err
		return
	}
	started <- nil
	p.err = p.cmd.Wait()
}

// Pid is the process id; it stays the same after the process is gone.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Done is closed when the process is gone.
func (p *Process) Done() <-chan struct{} { return p.done }

// Running says whether the process was alive at the moment of the call.
func (p *Process) Running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Err is how the process ended: nil is exit code 0, an *exec.ExitError another code or a signal.
// It waits for the end.
func (p *Process) Err() error {
	<-p.done
	return p.err
}

// Signal sends sig. A process that is gone already is not an error.
func (p *Process) Signal(sig os.Signal) error {
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal process %d: %w", p.Pid(), err)
	}
	return nil
}

// Wait returns when the process is gone, or with the context's error.
func (p *Process) Wait(ctx context.Context) error {
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Kill ends the process without asking it, and the children that stayed in its process group, and
// waits for its end.
func (p *Process) Kill() error {
	if p.Running() {
		if err := killGroup(p.cmd.Process); err != nil {
			return fmt.Errorf("kill process %d: %w", p.Pid(), err)
		}
	}
	<-p.done
	return nil
}

// Stop sends sig and waits for the end; after grace it kills.
func (p *Process) Stop(sig os.Signal, grace time.Duration) error {
	if err := p.Signal(sig); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	if p.Wait(ctx) == nil {
		return nil
	}
	return p.Kill()
}
