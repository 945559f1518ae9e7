package usage

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// CPU is the CPU time of a process so far, to the nanosecond, by its CPU clock (clock_getcpuclockid).
func CPU(pid int) (time.Duration, error) {
	const schedClock = 2
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|schedClock), &t); err != nil {
		return 0, fmt.Errorf("read the CPU time of process %d: %w", pid, err)
	}
	return time.Duration(t.Nano()), nil
}

// Peak is the most memory in bytes that a process ever had resident (VmHWM).
func Peak(pid int) (int64, error) {
	return kilobytes(fmt.Sprintf("/proc/%d/status", pid), "VmHWM:")
}

func memory() (int64, error) { return kilobytes("/proc/meminfo", "MemTotal:") }

// kilobytes reads the line of a file of /proc that begins with the name.
func kilobytes(path, name string) (int64, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) == 3 && fields[0] == name {
			n, err := strconv.ParseInt(fields[1], 10, 64)
			return n << 10, err
		}
	}
	return 0, fmt.Errorf("%s has no line %s", path, name)
}
