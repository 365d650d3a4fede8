// Package lane is what a lane leaves on its node's disk, and how its keeper is
// spoken to: the one thing that the driver plugin and the keeper share, though
// they may be of different versions.
package lane

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gangd/gangd/internal/runner"
	"github.com/gangd/gangd/plugins/driver/cgroup"
	"github.com/gangd/gangd/plugins/driver/process"
)

const lockName = "lock"

// EnvDir is the variable by which every process of a lane, and what descends
// from it, is known: it holds the lane's directory.
const EnvDir = "GANGD_LANE_DIR"

// Dir is the directory of one lane.
type Dir string

// DirOf returns the directory of a task's lane. Its name is short, whatever
// the task is called, so that the sockets' paths are.
func DirOf(stateDir, taskID string) Dir {
	sum := sha256.Sum256([]byte(taskID))
	return Dir(filepath.Join(stateDir, hex.EncodeToString(sum[:6])))
}

// CheckStateDir tells whether sockets can lie in lanes below stateDir.
func CheckStateDir(stateDir string) error {
	if !filepath.IsAbs(stateDir) {
		return fmt.Errorf("state_dir: %q is not an absolute path", stateDir)
	}
	if longest := DirOf(stateDir, "").RunnerSocket(999); len(longest) > runner.MaxSocketPath {
		return fmt.Errorf("state_dir: %q is too long by %d bytes for the sockets that lie in it: choose a shorter one, such as /run/gangd",
			stateDir, len(longest)-runner.MaxSocketPath)
	}
	return nil
}

func (d Dir) path(name string) string { return filepath.Join(string(d), name) }

// Name is the lane's name on its node, of 12 hexadecimal digits.
func (d Dir) Name() string { return filepath.Base(string(d)) }

// ControlSocket is where the keeper answers the driver plugin.
func (d Dir) ControlSocket() string { return d.path("control.sock") }

// RunnerSocket is where the keeper awaits a rank.
func (d Dir) RunnerSocket(localRank int) string { return d.path(fmt.Sprintf("r%d.sock", localRank)) }

// KeeperLog is where the keeper logs.
func (d Dir) KeeperLog() string { return d.path("keeper.log") }

// Output is where the ranks' lines are kept: stdout.log or stderr.log.
func (d Dir) Output(stream string) string { return d.path(stream + ".log") }

// ErrKept is wrapped where a lane has a keeper already.
var ErrKept = errors.New("the lane has a keeper")

// Lock makes the directory, if it is not there, and takes the lane. The lock
// belongs to the open file: a keeper inherits it at its start, and gives it up
// by its death and not before. Runners, which may be of another user, can pass
// through the directory to their sockets, and read nothing.
func (d Dir) Lock() (*os.File, error) {
	if err := os.MkdirAll(string(d), 0o711); err != nil {
		return nil, fmt.Errorf("make a lane's directory: %w", err)
	}
	if err := os.Chmod(string(d), 0o711); err != nil { // whatever the umask says
		return nil, fmt.Errorf("make a lane's directory: %w", err)
	}
	f, err := os.OpenFile(d.path(lockName), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock a lane: %w", err)
	}
	return f, d.take(f)
}

func (d Dir) take(f *os.File) error {
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = ErrKept
	}
	if err != nil {
		return errors.Join(fmt.Errorf("lock lane %s: %w", d, err), f.Close())
	}
	return nil
}

// Inherit is Lock for the keeper, whose starter left it the open file.
func (d Dir) Inherit(fd int) (*os.File, error) {
	unix.CloseOnExec(fd)
	f := os.NewFile(uintptr(fd), d.path(lockName))
	if f == nil {
		return nil, fmt.Errorf("lock lane %s: a keeper is started by the driver plugin, which locks its lane", d)
	}
	return f, d.take(f)
}

// Prepare makes the directory of a locked lane new, with the configuration in it.
func (d Dir) Prepare(c Config) error {
	entries, err := os.ReadDir(string(d))
	if err != nil {
		return fmt.Errorf("remove what an earlier keeper left: %w", err)
	}
	for _, e := range entries {
		if e.Name() == lockName {
			continue
		}
		if err := os.RemoveAll(d.path(e.Name())); err != nil {
			return fmt.Errorf("remove what an earlier keeper left: %w", err)
		}
	}
	return d.write("config.json", c)
}

// Config reads what the keeper was started with.
func (d Dir) Config() (Config, error) {
	var c Config
	return c, d.read("config.json", &c)
}

// Keeper is a keeper's word on itself.
type Keeper struct {
	process.Ref
	StartedAt time.Time    `json:"started_at"`
	Group     cgroup.Group `json:"group"`
}

// SetKeeper records the keeper, for those who look for it.
func (d Dir) SetKeeper(k Keeper) error { return d.write("keeper.json", k) }

// Keeper reads who keeps the lane; the error wraps fs.ErrNotExist before it
// has said so.
func (d Dir) Keeper() (Keeper, error) {
	var k Keeper
	return k, d.read("keeper.json", &k)
}

// Exit is how a lane ended.
type Exit struct {
	Code        int       `json:"code"`
	Signal      int       `json:"signal,omitempty"`
	OutOfMemory bool      `json:"out_of_memory,omitempty"`
	Message     string    `json:"message,omitempty"` // set where the end is a failure
	At          time.Time `json:"at"`
	// Events are those that no driver plugin had read when the keeper ended.
	Events []Event `json:"events,omitempty"`
}

// SetExit records the lane's end, durably.
func (d Dir) SetExit(e Exit) error { return d.write("exit.json", e) }

// Exit reads how the lane ended; the error wraps fs.ErrNotExist where it has
// not, or where its keeper was lost.
func (d Dir) Exit() (Exit, error) {
	var e Exit
	return e, d.read("exit.json", &e)
}

// Remove deletes the directory.
func (d Dir) Remove() error { return os.RemoveAll(string(d)) }

// List returns the lanes below stateDir.
func List(stateDir string) ([]Dir, error) {
	entries, err := os.ReadDir(stateDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var dirs []Dir
	for _, e := range entries {
		if e.IsDir() {
			dirs = append(dirs, Dir(filepath.Join(stateDir, e.Name())))
		}
	}
	return dirs, err
}

// write replaces a file whole, so that a reader sees the old or the new one.
func (d Dir) write(name string, value any) error {
	content, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return fmt.Errorf("write %s: %w", d.path(name), err)
	}
	f, err := os.CreateTemp(string(d), name+".*") // 0600: there may be secrets in it
	if err != nil {
		return fmt.Errorf("write %s: %w", d.path(name), err)
	}
	defer os.Remove(f.Name())
	_, err = f.Write(append(content, '\n'))
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), d.path(name))
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", d.path(name), err)
	}
	return nil
}

func (d Dir) read(name string, into any) error {
	content, err := os.ReadFile(d.path(name))
	if err != nil {
		return err
	}
	if err := json.Unmarshal(content, into); err != nil {
		return fmt.Errorf("read %s: %w", d.path(name), err)
	}
	return nil
}
