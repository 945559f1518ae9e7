// Package usage is what processes take of a machine: CPU and memory.
package usage

import (
	"fmt"
	"math"
	"runtime"
)

// Machine says what everything of a run shares.
func Machine() string {
	size := ""
	if bytes, err := memory(); err == nil {
		size = fmt.Sprintf(", %.0f GiB", math.Ceil(float64(bytes)/(1<<30)))
	}
	return fmt.Sprintf("%d cores%s (%s/%s)", runtime.NumCPU(), size, runtime.GOOS, runtime.GOARCH)
}
