package main

import (
	"fmt"
	"math"
	"runtime"
)

// machine says what everything of a run shares.
func machine() string {
	size := ""
	if bytes, err := memory(); err == nil {
		size = fmt.Sprintf(", %.0f GiB", math.Ceil(float64(bytes)/(1<<30)))
	}
	return fmt.Sprintf("%d cores%s (%s/%s), everything on it", runtime.NumCPU(), size, runtime.GOOS, runtime.GOARCH)
}
