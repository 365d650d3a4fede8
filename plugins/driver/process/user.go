package process

import (
	"fmt"
	"os"
	"os/user"
	"strconv"
)

// Lookup finds a user by name or number. It returns nil for this process's own
// user, and for "".
func Lookup(name string) (*Credential, error) {
	if name == "" {
		return nil, nil
	}
	u, err := user.Lookup(name)
	if err != nil {
		if _, notNumber := strconv.Atoi(name); notNumber != nil {
			return nil, fmt.Errorf("user %q: %w", name, err)
		}
		if u, err = user.LookupId(name); err != nil {
			return nil, fmt.Errorf("user %q: %w", name, err)
		}
	}
	c := &Credential{}
	if c.UID, err = strconv.Atoi(u.Uid); err != nil {
		return nil, fmt.Errorf("user %q has the ID %q: %w", name, u.Uid, err)
	}
	if c.GID, err = strconv.Atoi(u.Gid); err != nil {
		return nil, fmt.Errorf("user %q has the group %q: %w", name, u.Gid, err)
	}
	groups, err := u.GroupIds()
	if err != nil {
		return nil, fmt.Errorf("groups of user %q: %w", name, err)
	}
	for _, g := range groups {
		id, err := strconv.Atoi(g)
		if err != nil {
			return nil, fmt.Errorf("user %q is in the group %q: %w", name, g, err)
		}
		c.Groups = append(c.Groups, id)
	}
	if c.UID == os.Getuid() && c.GID == os.Getgid() {
		return nil, nil
	}
	return c, nil
}
