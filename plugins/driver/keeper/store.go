package keeper

import (
	"context"
	"errors"
	"fmt"
	"mime"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/gangd/gangd/internal/blob"
	"github.com/gangd/gangd/internal/link/linkpb"
	"github.com/gangd/gangd/internal/runner"
	"github.com/gangd/gangd/plugins/driver/process"
)

// storeTimeout bounds the upload of a run's results.
const storeTimeout = 15 * time.Minute

var extensionRule = regexp.MustCompile(`^\.[a-z0-9]{1,10}$`)

// storeResults makes the files that the ranks named durable, and removes them
// here; without any it returns nil for both. Only files below
// the run's output directory are taken: the keeper may read what the runner
// may not.
func storeResults(ctx context.Context, run *linkpb.Run, results []runner.Result, taskDir string) (artifact, thumbnail *linkpb.Artifact, err error) {
	var result runner.Result
	for _, r := range results {
		if r.Path != "" {
			result = r
			break
		}
	}
	if result.Path == "" {
		return nil, nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	to, err := blob.Open(ctx, run.GetBlobUrl())
	if err != nil {
		return nil, nil, err
	}
	defer to.Close()
	task, err := os.OpenRoot(taskDir)
	if err != nil {
		return nil, nil, fmt.Errorf("store the result: %w", err)
	}
	defer task.Close()
	output := runOutputDir(run)
	root, err := task.OpenRoot(output)
	if err != nil {
		return nil, nil, fmt.Errorf("store the result: %w", err)
	}
	defer root.Close()
	store := func(path, contentType string) (*linkpb.Artifact, error) {
		a, err := storeFile(ctx, to, root, filepath.Join(taskDir, output), path, contentType)
		if err != nil {
			return nil, fmt.Errorf("store the result %s: %w", path, err)
		}
		return a, nil
	}
	if artifact, err = store(result.Path, result.ContentType); err != nil {
		return nil, nil, err
	}
	if result.Thumbnail != "" {
		if thumbnail, err = store(result.Thumbnail, ""); err != nil {
			return nil, nil, err
		}
	}
	return artifact, thumbnail, task.RemoveAll(output)
}

// storeFile stores a file below root, which is the directory at.
func storeFile(ctx context.Context, to *blob.Store, root *os.Root, at, path, contentType string) (*linkpb.Artifact, error) {
	name := path
	if filepath.IsAbs(path) {
		relative, err := filepath.Rel(at, path)
		if err != nil {
			return nil, err
		}
		name = relative
	}
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a FIFO must not block
	if err != nil {
		return nil, fmt.Errorf("it must lie below the run's output_dir %s: %w", at, err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("it is no regular file")
	}
	if err != nil {
		return nil, err
	}
	extension := strings.ToLower(filepath.Ext(name))
	if !extensionRule.MatchString(extension) {
		extension = ""
	}
	if contentType == "" {
		contentType = mime.TypeByExtension(extension)
	}
	a, err := to.PutContent(ctx, f, extension, clip(contentType, maxNameBytes))
	if err != nil {
		return nil, err
	}
	return &linkpb.Artifact{Key: a.Key, Sha256: a.SHA256, Bytes: a.Bytes, ContentType: a.ContentType}, nil
}

// makeDir makes a directory below the task's, for the runner's user where it
// is another. No symbolic link that a runner left leads out of the task's.
func makeDir(taskDir, name string, owner *process.Credential) error {
	root, err := os.OpenRoot(taskDir)
	if err != nil {
		return fmt.Errorf("make a directory for the runner: %w", err)
	}
	defer root.Close()
	if err = root.MkdirAll(name, 0o755); err == nil && owner != nil {
		err = root.Lchown(name, owner.UID, owner.GID)
	}
	if err != nil {
		return fmt.Errorf("make a directory for the runner: %w", err)
	}
	return nil
}
