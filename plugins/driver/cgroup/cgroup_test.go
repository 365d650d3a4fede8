package cgroup

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"
)

func TestModes(t *testing.T) {
	for name, c := range map[string]struct {
		mounts, own string
		mode        string
		v2          string
		v1          map[string]string
	}{
		"unified": {
			mounts: "sysfs /sys sysfs rw 0 0\ncgroup2 /sys/fs/cgroup cgroup2 rw,nosuid 0 0\n",
			own:    "0::/system.slice/nomad.service\n",
			mode:   ModeUnified, v2: "/sys/fs/cgroup", v1: map[string]string{},
		},
		"hybrid": {
			mounts: "cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\ncgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0\ncgroup /sys/fs/cgroup/systemd cgroup rw,xattr,name=systemd 0 0\n",
			own:    "4:memory:/jobs/a:b\n1:name=systemd:/x\n0::/\n",
			mode:   ModeHybrid, v2: "/sys/fs/cgroup/unified",
			v1: map[string]string{"memory": "/sys/fs/cgroup/memory/jobs/a:b", "name=systemd": "/sys/fs/cgroup/systemd/x"},
		},
		"legacy with joined controllers": {
			mounts: "cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,cpu,cpuacct 0 0\ncgroup /sys/fs/cgroup/pids cgroup rw,pids 0 0\n",
			own:    "2:cpu,cpuacct:/\n3:pids:/user\n",
			mode:   ModeLegacy,
			v1:     map[string]string{"cpu": "/sys/fs/cgroup/cpu,cpuacct", "cpuacct": "/sys/fs/cgroup/cpu,cpuacct", "pids": "/sys/fs/cgroup/pids/user"},
		},
		"none": {mode: ModeNone, v1: map[string]string{}},
	} {
		h := parse(c.mounts, c.own)
		if h.Mode() != c.mode || h.v2 != c.v2 || !maps.Equal(h.v1, c.v1) {
			t.Errorf("%s: mode %s, %+v", name, h.Mode(), h)
		}
	}
}

func TestWithoutControlGroupsNothingIsHeld(t *testing.T) {
	g, err := Hierarchies{}.Create("x", 1<<20)
	if err == nil || g != (Group{}) {
		t.Errorf("group %+v, %v", g, err)
	}
	if pids, err := g.PIDs(); len(pids) > 0 || err != nil {
		t.Errorf("processes %v, %v", pids, err)
	}
	if err := g.Kill(); err != nil {
		t.Error(err)
	}
	if err := g.Remove(); err != nil {
		t.Error(err)
	}
}

// TestAProcessStartsInTheGroupOfItsThread, of version 1: the process that
// starts it is no member, and is not killed with it.
func TestAProcessStartsInTheGroupOfItsThread(t *testing.T) {
	h := Detect()
	h.v2 = "" // as on a machine of version 1 alone
	g, err := h.Create(fmt.Sprintf("test-%d", os.Getpid()), 0)
	if err != nil {
		t.Skipf("no group of version 1 can be made here: %v", err)
	}
	cmd := exec.Command("sleep", "600")
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := g.JoinThread()
		if err == nil {
			err = cmd.Start()
		}
		started <- err
		<-started
		home := filepath.Join(g.V1, "..", "..", "tasks")
		started <- os.WriteFile(home, []byte("0"), 0)
	}()
	err = <-started
	pids, pidsErr := g.PIDs()
	killErr := g.Kill() // would end this test
	started <- nil
	if err := <-started; err != nil {
		t.Error(err)
	}
	if err != nil || pidsErr != nil || killErr != nil || !slices.Equal(pids, []int{cmd.Process.Pid}) {
		t.Errorf("the group has %v, %v; %v, %v", pids, pidsErr, err, killErr)
	}
	if err == nil {
		cmd.Wait()
		if status := cmd.ProcessState.Sys().(syscall.WaitStatus); status.Signal() != syscall.SIGKILL {
			t.Errorf("it ended with %v", cmd.ProcessState)
		}
	}
	deadline := time.Now().Add(10 * time.Second)
	for err = g.Remove(); err != nil && time.Now().Before(deadline); err = g.Remove() {
		runtime.Gosched()
	}
	if err != nil {
		t.Errorf("the group stays: %v", err)
	}
}
