package child

import (
	"fmt"
	"os"
	"os/user"
	"strconv"
)

// Account is the user that a child runs as. A nil *Account is the user of this process.
type Account struct{ UID, GID uint32 }

// Unprivileged is the account for servers that refuse to run as root: nil where this process is not
// root, else nobody. The number 65534 stands in where no user of that name is known.
func Unprivileged() (*Account, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	nobody, err := user.Lookup("nobody")
	if err != nil {
		return &Account{65534, 65534}, nil
	}
	// macOS writes nobody as -2: both spellings are the same 32 bits.
	uid, err := strconv.ParseInt(nobody.Uid, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("read the uid of user nobody: %w", err)
	}
	gid, err := strconv.ParseInt(nobody.Gid, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("read the gid of user nobody: %w", err)
	}
	return &Account{uint32(uid), uint32(gid)}, nil
}

// Own gives the file or folder to the account. It does nothing for nil.
func (a *Account) Own(path string) error {
	if a == nil {
		return nil
	}
	if err := os.Chown(path, int(a.UID), int(a.GID)); err != nil {
		return fmt.Errorf("give %s to uid %d: %w", path, a.UID, err)
	}
	return nil
}
