//go:build unix

package child

import (
	"errors"
	"os"
	"syscall"
)

func credential(as *Account) *syscall.Credential {
	if as == nil {
		return nil
	}
	return &syscall.Credential{Uid: as.UID, Gid: as.GID}
}

// killGroup relies on Setpgid: the group's number is the leader's pid.
func killGroup(leader *os.Process) error {
	if err := syscall.Kill(-leader.Pid, syscall.SIGKILL); !errors.Is(err, syscall.ESRCH) {
		return err
	}
	return nil
}
