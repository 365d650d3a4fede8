package task

import (
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/gangd/gangd/plugins/driver/lane"
	"github.com/gangd/gangd/plugins/driver/process"
)

// keep makes a lane's directory, as a keeper would leave it.
func keep(t *testing.T, stateDir, name string, keeper process.Ref) lane.Dir {
	t.Helper()
	dir := lane.DirOf(stateDir, name)
	lock, err := dir.Lock()
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err = dir.Prepare(lane.Config{Lane: name}); err == nil {
		err = dir.SetKeeper(lane.Keeper{Ref: keeper})
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func aliveAndDead(t *testing.T) (alive, dead process.Ref) {
	t.Helper()
	alive, err := process.Find(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("true")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	return alive, process.Ref{PID: cmd.Process.Pid, Started: 1}
}

func TestTheBeatListsLanesWithLivingKeepers(t *testing.T) {
	stateDir := t.TempDir()
	alive, dead := aliveAndDead(t)
	keep(t, stateDir, "lane-a", alive)
	keep(t, stateDir, "lane-b", dead)
	if err := os.Mkdir(stateDir+"/other", 0o755); err != nil {
		t.Fatal(err)
	}
	l := &living{stateDir: stateDir, known: make(map[lane.Dir]livingLane)}
	if got := l.list(); !slices.Equal(got, []string{"lane-a"}) {
		t.Errorf("lanes %v", got)
	}
	keep(t, stateDir, "lane-b", alive)
	if got := l.list(); len(got) != 2 {
		t.Errorf("lanes %v after one began", got)
	}
	lane.DirOf(stateDir, "lane-a").Remove()
	if got := l.list(); !slices.Equal(got, []string{"lane-b"}) {
		t.Errorf("lanes %v after one was destroyed", got)
	}
}

func TestOldLanesAreCollected(t *testing.T) {
	stateDir := t.TempDir()
	alive, dead := aliveAndDead(t)
	old, long := time.Now().Add(-2*collectAge), map[string]bool{}
	for name, c := range map[string]struct {
		keeper    process.Ref
		old, stay bool
	}{
		"old and dead":   {dead, true, false},
		"old and living": {alive, true, true},
		"dead just now":  {dead, false, true},
	} {
		dir := keep(t, stateDir, name, c.keeper)
		if c.old {
			if err := os.Chtimes(string(dir), old, old); err != nil {
				t.Fatal(err)
			}
		}
		long[string(dir)] = c.stay
	}
	foreign := stateDir + "/no-lane"
	if err := os.Mkdir(foreign, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(foreign, old, old); err != nil {
		t.Fatal(err)
	}
	long[foreign] = true
	collect(stateDir, hclog.NewNullLogger())
	for dir, stay := range long {
		if _, err := os.Stat(dir); (err == nil) != stay {
			t.Errorf("%s: stays should be %v, got %v", dir, stay, err)
		}
	}
}
