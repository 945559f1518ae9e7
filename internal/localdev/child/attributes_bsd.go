//go:build unix && !linux

package child

import (
	"os"
	"os/exec"
	"syscall"
)

// There is no death signal outside Linux: a child is ended by Stop and Kill only.
func setAttributes(cmd *exec.Cmd, as *Account, _ os.Signal) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: credential(as)}
	return nil
}
