package main

import (
	"errors"
	"fmt"
	"reflect"
	"testing"

	"github.com/gangd/gangd/internal/cluster"
	"github.com/gangd/gangd/internal/coordinator"
	"github.com/gangd/gangd/internal/nomad"
)

// The list that follows a lost stream tells of a lane what the stream would
// have told, behind the nodes and the jobs.
func TestTheListTellsWhatTheStreamWouldHaveTold(t *testing.T) {
	const job, reason = "gangd.wan.4cf8a1b2.0l", "Nomad cannot place it: 1 nodes evaluated"
	child := nomad.Child{Job: job + "/dispatch-1-2"}
	placed := child
	placed.Allocation = &nomad.Allocation{ID: "a", Job: job, Child: child.Job, Lane: "0l", ClientStatus: "running", DesiredStatus: "run"}
	blocked, replaced := child, placed
	blocked.Blocked, replaced.Blocked = reason, reason

	for name, c := range map[string]struct {
		lane nomad.LaneJob
		// event is the stream's; nil where it would have said nothing more than
		// how the allocation stands.
		event nomad.Event
	}{
		"nothing is dispatched yet":            {nomad.LaneJob{}, nil},
		"it runs":                              {nomad.LaneJob{Children: []nomad.Child{placed}}, nil},
		"it has no place":                      {nomad.LaneJob{Children: []nomad.Child{blocked}}, nomad.LaneBlocked{Job: job, Lane: "0l", Reason: reason}},
		"only another one has no place":        {nomad.LaneJob{Children: []nomad.Child{replaced}}, nil},
		"it was stopped":                       {nomad.LaneJob{Gone: true, Children: []nomad.Child{placed}}, nomad.LaneGone{Job: job, Lane: "0l"}},
		"it was stopped before it had a place": {nomad.LaneJob{Gone: true, Children: []nomad.Child{blocked}}, nomad.LaneGone{Job: job, Lane: "0l"}},
		"its dispatched job was purged":        {nomad.LaneJob{Gone: true}, nomad.LaneGone{Job: job, Lane: "0l"}},
	} {
		p := &nomadPort{}
		c.lane.Job, c.lane.Lane = job, "0l"
		all := p.inputs(nomad.Resync{Nodes: []nomad.Node{{ID: "n"}}, Lanes: []nomad.LaneJob{c.lane}})
		if len(all) < 2 {
			t.Errorf("%s: %+v", name, all)
			continue
		}
		nodes, _ := all[0].(coordinator.NodesListed)
		jobs, _ := all[1].(coordinator.LaneJobsListed)
		if len(nodes.Nodes) != 1 || len(jobs.Jobs) != 1 || jobs.Jobs[0].Lane != "0l" {
			t.Errorf("%s: first come %+v", name, all[:2])
		}
		var want []coordinator.Input
		if c.event != nil {
			want = p.inputs(c.event)
		}
		if got := all[2:]; len(got) != len(want) || len(got) > 0 && !reflect.DeepEqual(got, want) {
			t.Errorf("%s: then come %+v, want %+v", name, got, want)
		}
	}
}

func TestHowALanesAllocationStands(t *testing.T) {
	const evict = "evict"
	type stands struct{ ended, failed, stopped, lost, preempted bool }
	for _, c := range []struct {
		client, desired string
		failed          bool
		want            stands
	}{
		{"pending", "run", false, stands{}},
		{"running", "run", false, stands{}},
		{"running", nomad.DesiredStop, false, stands{}},
		{"unknown", "run", false, stands{}},
		{nomad.ClientComplete, "run", false, stands{ended: true}},
		{nomad.ClientComplete, nomad.DesiredStop, false, stands{ended: true, stopped: true}},
		{nomad.ClientFailed, "run", true, stands{ended: true, failed: true}},
		{nomad.ClientFailed, nomad.DesiredStop, true, stands{ended: true, failed: true}},
		{nomad.ClientLost, nomad.DesiredStop, false, stands{ended: true, lost: true}},
		{"running", evict, false, stands{preempted: true}},
		{nomad.ClientComplete, evict, false, stands{ended: true, preempted: true}},
		{nomad.ClientFailed, evict, true, stands{ended: true, failed: true, preempted: true}},
		{nomad.ClientLost, evict, false, stands{ended: true, lost: true, preempted: true}},
	} {
		a := nomad.Allocation{ID: "a", Job: "j", Lane: "0l", ClientStatus: c.client, DesiredStatus: c.desired, Failed: c.failed, Message: "m"}
		if c.desired == evict {
			a.PreemptedBy = "b"
		}
		got := (&nomadPort{}).inputs(nomad.AllocationChanged{Allocation: a})[0].(coordinator.LaneJobChanged).Job
		want := coordinator.LaneJob{
			Job: "j", Lane: "0l", Allocation: "a", Message: "m",
			Ended: c.want.ended, Failed: c.want.failed, Stopped: c.want.stopped, Lost: c.want.lost, Preempted: c.want.preempted,
		}
		if got != want {
			t.Errorf("%s that should %s: %+v", c.client, c.desired, got)
		}
	}
}

func TestTemplatesComeBeforeTheNodes(t *testing.T) {
	seen := nomad.TemplateChanged{Name: "wan", Version: 7}
	all := (&nomadPort{}).inputs(nomad.Resync{Templates: []nomad.TemplateChanged{seen}})
	if want := (coordinator.TemplateSeen{Name: "wan", Version: 7}); all[0] != want || len(all) != 3 {
		t.Errorf("%+v", all)
	}
	if all := (&nomadPort{}).inputs(seen); len(all) != 1 || all[0] != (coordinator.TemplateSeen{Name: "wan", Version: 7}) {
		t.Errorf("a change: %+v", all)
	}
}

func TestOnlyATemplateThatWillNotDoIsBlamed(t *testing.T) {
	for _, c := range []struct{ from, is, isNot error }{
		{nomad.ErrNoTemplate, coordinator.ErrTemplate, coordinator.ErrTemplateVersion},
		{&nomad.TemplateError{Template: "wan"}, coordinator.ErrTemplate, coordinator.ErrTemplateVersion},
		{nomad.ErrTemplateVersion, coordinator.ErrTemplateVersion, coordinator.ErrTemplate},
		{errors.New("connection refused"), nil, coordinator.ErrTemplate},
	} {
		from := fmt.Errorf("open lane 0l: %w", c.from)
		err := templateError(from)
		if c.is != nil && !errors.Is(err, c.is) || errors.Is(err, c.isNot) || !errors.Is(err, c.from) || err.Error() != from.Error() {
			t.Errorf("%v becomes %v", from, err)
		}
	}
	if templateError(nil) != nil {
		t.Error("success becomes an error")
	}
}

func TestWhatBefellLanesComesInTheirOrder(t *testing.T) {
	all := (&nomadPort{}).inputs(nomad.Resync{Lanes: []nomad.LaneJob{
		{Lane: "a", Gone: true},
		{Lane: "b", Children: []nomad.Child{{Blocked: "full"}}},
		{Lane: "c", Gone: true},
	}})
	want := []coordinator.Input{coordinator.LaneJobRemoved{Lane: "a"}, coordinator.LaneBlocked{Lane: "b", Reason: "full"}, coordinator.LaneJobRemoved{Lane: "c"}}
	if !reflect.DeepEqual(all[2:], want) {
		t.Errorf("%+v, want %+v", all[2:], want)
	}
}

func TestWhatANodeHasBesideGPUsIsHandedOn(t *testing.T) {
	n := nomad.Node{ID: "n", CPUMHz: 4700, CoreMHz: 2400, MemoryMiB: 24_000, Foreign: nomad.Foreign{CPUMHz: 950, MemoryMiB: 2080, Devices: map[string]string{"GPU-0": "notebook"}}}
	v := (&nomadPort{}).inputs(nomad.NodeChanged{Node: n})[0].(coordinator.NodeChanged).Node
	if v.Capacity != (cluster.Room{CPUMHz: 4700, MemoryMiB: 24_000}) || v.CoreMHz != 2400 || v.Foreign != (cluster.Room{CPUMHz: 950, MemoryMiB: 2080}) || v.HeldBy["GPU-0"] != "notebook" {
		t.Errorf("%+v becomes %+v", n, v)
	}
}
