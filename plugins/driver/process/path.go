package process

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// usualPath is searched where no PATH is set.
const usualPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// LookPath finds the program of a command: an absolute path, a name in the
// search path, or a path relative to dir. The error wraps fs.ErrNotExist where
// there is none, and fs.ErrPermission where it may not be executed.
func LookPath(command, searchPath, dir string) (string, error) {
	if filepath.IsAbs(command) {
		return command, executable(command)
	}
	if !strings.ContainsRune(command, '/') {
		if searchPath == "" {
			searchPath = usualPath
		}
		for _, in := range filepath.SplitList(searchPath) {
			if path := filepath.Join(in, command); filepath.IsAbs(in) && executable(path) == nil {
				return path, nil
			}
		}
	}
	path := filepath.Join(dir, command)
	err := executable(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("%q is neither in PATH (%s) nor below %s: %w", command, searchPath, dir, fs.ErrNotExist)
	}
	return path, err
}

func executable(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
		return &fs.PathError{Op: "execute", Path: path, Err: fs.ErrPermission}
	}
	return nil
}
