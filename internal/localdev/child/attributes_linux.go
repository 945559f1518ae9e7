package child

import (
	"os"
	"os/exec"
	"syscall"
)

func setAttributes(cmd *exec.Cmd, as *Account, orphaned os.Signal) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: credential(as)}
	if sig, ok := orphaned.(syscall.Signal); ok {
		cmd.SysProcAttr.Pdeathsig = sig
	}
	return nil
}
