//go:build unix

package child

import "syscall"

func credential(as *Account) *syscall.Credential {
	if as == nil {
		return nil
	}
	return &syscall.Credential{Uid: as.UID, Gid: as.GID}
}
