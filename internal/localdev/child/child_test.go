//go:build unix

package child

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// With CHILD_TEST set this binary is the process that dies without stopping its child.
func TestMain(m *testing.M) {
	if os.Getenv("CHILD_TEST") != "" {
		os.Exit(leaveAnOrphan())
	}
	goleak.VerifyTestMain(m)
}

func leaveAnOrphan() int {
	p, err := Start(exec.Command("sleep", "60"), nil, syscall.SIGKILL)
	if err != nil {
		return 1
	}
	os.Stdout.WriteString(strconv.Itoa(p.Pid()))
	return 0
}

func TestStopAsksAndThenKills(t *testing.T) {
	obedient, err := Start(exec.Command("sleep", "60"), nil, syscall.SIGKILL)
	if err != nil {
		t.Fatal(err)
	}
	if !obedient.Running() {
		t.Error("not running")
	}
	if err := obedient.Stop(syscall.SIGTERM, 10*time.Second); err != nil {
		t.Fatal(err)
	}
	ended(t, obedient, syscall.SIGTERM)

	ready, said, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer ready.Close()
	cmd := exec.Command("sh", "-c", "trap '' TERM; echo; while :; do sleep 1; done")
	cmd.Stdout = said
	deaf, err := Start(cmd, nil, syscall.SIGKILL)
	said.Close()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ready.Read(make([]byte, 1)); err != nil { // its trap is set
		t.Fatal(err)
	}
	if err := deaf.Stop(syscall.SIGTERM, 200*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	ended(t, deaf, syscall.SIGKILL)
	if err := deaf.Signal(syscall.SIGTERM); err != nil {
		t.Errorf("signal to a process that is gone: %v", err)
	}
}

func ended(t *testing.T, p *Process, by syscall.Signal) {
	t.Helper()
	var exit *exec.ExitError
	if !errors.As(p.Err(), &exit) {
		t.Fatalf("ended with %v", p.Err())
	}
	if got := exit.Sys().(syscall.WaitStatus).Signal(); got != by {
		t.Errorf("ended by %s, want %s", got, by)
	}
}

func TestWaitIsBounded(t *testing.T) {
	p, err := Start(exec.Command("sleep", "60"), nil, syscall.SIGKILL)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Kill()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := p.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Wait says %v", err)
	}
}

func TestMissingProgramIsAnError(t *testing.T) {
	if _, err := Start(exec.Command("/no/such/program"), nil, syscall.SIGKILL); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Start says %v", err)
	}
}

func TestRootRunsAsNobody(t *testing.T) {
	as, err := Unprivileged()
	if err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() != 0 {
		if as != nil {
			t.Errorf("an ordinary user becomes %v", as)
		}
		t.Skip("not root")
	}
	out, err := os.CreateTemp(t.TempDir(), "out")
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	cmd := exec.Command("id", "-u")
	cmd.Stdout, cmd.Dir = out, "/"
	p, err := Start(cmd, as, syscall.SIGKILL)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Err(); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(out.Name())
	if err != nil {
		t.Fatal(err)
	}
	if strings.TrimSpace(string(got)) != strconv.Itoa(int(as.UID)) {
		t.Errorf("ran as uid %s, want %d", got, as.UID)
	}
}

// A process that dies without stopping its child takes the child with it.
func TestOrphanIsEnded(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("there is no death signal on " + runtime.GOOS)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	parent := exec.Command(self)
	parent.Env = append(os.Environ(), "CHILD_TEST=1")
	out, err := parent.Output()
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(string(out))
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if gone(pid) {
			return
		}
	}
	t.Errorf("process %d is still there", pid)
	syscall.Kill(pid, syscall.SIGKILL)
}

// gone: there is no such process, or only its entry waits for a parent that does not ask.
func gone(pid int) bool {
	if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return true
	}
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err != nil || strings.Contains(string(stat), ") Z ")
}
