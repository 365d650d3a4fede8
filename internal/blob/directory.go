package blob

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

const (
	// partialDir holds what is being written, on the same filesystem as its
	// destination. No key begins with a dot.
	partialDir = ".partial"
	// partialAge is after how long a partial file is one whose writer died.
	partialAge = 24 * time.Hour
)

// directory creates objects as files. gocloud's own conditional write of a
// file holds only within one process and is not synced; a hard link to a
// synced file is refused by the kernel where the name exists, whoever asks.
type directory struct{ root string }

func openDirectory(root string) (directory, error) {
	d := directory{root: root}
	if err := os.MkdirAll(filepath.Join(root, partialDir), 0o777); err != nil {
		return d, err
	}
	return d, d.sweep(time.Now())
}

// sweep removes what dead writers left.
func (d directory) sweep(now time.Time) error {
	entries, err := os.ReadDir(filepath.Join(d.root, partialDir))
	if err != nil {
		return err
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || now.Sub(info.ModTime()) < partialAge {
			continue // gone meanwhile, or in use
		}
		if err := os.Remove(filepath.Join(d.root, partialDir, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

func (d directory) create(ctx context.Context, key string, content io.Reader, _ string) error {
	path := filepath.Join(d.root, filepath.FromSlash(key))
	if _, err := os.Lstat(path); err == nil {
		return errExists
	}
	partial, err := d.writePartial(ctx, content)
	if err != nil {
		return err
	}
	defer os.Remove(partial)
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	if err := os.Link(partial, path); errors.Is(err, fs.ErrExist) {
		return errExists
	} else if err != nil {
		return err
	}
	return d.syncUp(dir)
}

// writePartial writes content to a new synced file and returns its path. No
// file remains if it fails.
func (d directory) writePartial(ctx context.Context, content io.Reader) (path string, err error) {
	f, err := os.CreateTemp(filepath.Join(d.root, partialDir), "")
	if err != nil {
		return "", err
	}
	defer func() {
		if err = errors.Join(err, f.Close()); err != nil {
			os.Remove(f.Name())
		}
	}()
	// Others read objects than those who write them.
	if err := f.Chmod(0o644); err != nil {
		return "", err
	}
	if _, err := io.Copy(f, contextReader{ctx, content}); err != nil {
		return "", err
	}
	return f.Name(), f.Sync()
}

// syncUp makes the names from dir up to the root durable.
func (d directory) syncUp(dir string) error {
	for {
		if err := syncDir(dir); err != nil {
			return err
		}
		if rel, err := filepath.Rel(d.root, dir); err != nil || rel == "." {
			return err
		}
		dir = filepath.Dir(dir)
	}
}

func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// contextReader ends a copy when its context does.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (r contextReader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.r.Read(p)
}
