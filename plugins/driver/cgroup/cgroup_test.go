package cgroup

import (
	"maps"
	"testing"
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
	if err == nil || len(g.Joins()) > 0 {
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
