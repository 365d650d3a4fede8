package sim

import (
	"bytes"
	"strings"
	"testing"

	"github.com/gangd/gangd/internal/config"
	"github.com/gangd/gangd/internal/gang"
	"github.com/gangd/gangd/internal/schedule"
)

// recorded plays a gang that is preempted for another, and goes on after it.
func recorded(t *testing.T) (*config.Scenario, []Record) {
	t.Helper()
	s := read(t, "cluster {\n node \"n\" {\n count = 2\n }\n node \"l\" {\n gpu = \"L40S\"\n gpu_memory = \"48GiB\"\n }\n}\n"+
		"tenant \"default\" {\n max_gpus = 15\n}\n"+one(saves)+
		"gang \"B\" {\n at = \"25s\"\n gpus = 8\n gpus_per_node = 4\n duration = \"10s\"\n gpu = \"H100-80GB\"\n gpu_memory = \"60GiB\"\n}\n"+
		happens("30s", "drain", "node = \"n-1\"")+happens("50s", "node_down", "node = \"l\""))
	var records []Record
	e := &puppet{script: []order{
		{0, start("A", 1, 8, "n-0")},
		{seconds(25), schedule.Stop{ID: "A", Attempt: 1, Cause: schedule.Preempted, Mode: schedule.Graceful, For: "B"}},
		{seconds(27), start("B", 1, 4, "n-0", "n-1")}, {seconds(38), start("A", 2, 8, "n-0")},
	}, log: new(bytes.Buffer)}
	checker := NewChecker(s)
	_, err := Run(s, e, Options{Until: Forever}, func(r Record) error {
		records = append(records, r)
		return checker.Take(r)
	})
	if err != nil || len(checker.Unfinished()) > 0 {
		t.Fatal(err, checker.Unfinished())
	}
	return s, records
}

// on is a placement.
func on(gpus int, nodes ...string) Members { return Members(start("", 1, gpus, nodes...).Placement) }

// Each case takes one record out of a sound play, or puts others in its place;
// the checker finds what must not be.
func TestCheckerFindsWhatMustNotBe(t *testing.T) {
	s, sound := recorded(t)
	startedOn := func(gpus int, m Members) func(Record) []Record {
		return func(r Record) []Record {
			f := r.Fact.(Started)
			f.Members, f.GPUs = m, gpus
			return []Record{{r.At, r.Gang, f}}
		}
	}
	started := func(change func(*Started)) func(Record) []Record {
		return func(r Record) []Record {
			f := r.Fact.(Started)
			change(&f)
			return []Record{{r.At, r.Gang, f}}
		}
	}
	instead := func(f Fact) func(Record) []Record {
		return func(r Record) []Record { return []Record{{r.At, r.Gang, f}} }
	}
	summary := func(change func(*Summary)) func(Record) []Record {
		return func(r Record) []Record {
			f := *r.Fact.(*Summary)
			change(&f)
			return []Record{{r.At, r.Gang, &f}}
		}
	}
	later := func(by float64) func(Record) []Record {
		return func(r Record) []Record { return []Record{{r.At + seconds(by), r.Gang, r.Fact}} }
	}
	gone := func(Record) []Record { return nil }
	twice := func(r Record) []Record { return []Record{r, r} }
	for _, c := range []struct {
		gang   gang.ID
		event  string
		nth    int
		change func(Record) []Record
		words  string
	}{
		{"B", "submitted", 1, gone, "a gang is submitted first"},
		{"B", "submitted", 1, twice, "a gang is submitted first, and once"},
		{"B", "submitted", 1, later(1), "it arrives at 25s"},
		{"B", "submitted", 1, func(r Record) []Record { return []Record{{r.At, "C", r.Fact}} }, "no such gang"},
		{"A", "started", 1, startedOn(4, on(4, "n-0")), "no size of it"},
		{"A", "started", 1, startedOn(8, on(7, "n-0")), "not those of its members"},
		{"A", "started", 1, startedOn(8, nil), "not those of its members"},
		{"B", "started", 1, startedOn(8, on(8, "n-0")), "its members have 8 GPUs, not 4"},
		{"B", "started", 1, startedOn(8, on(4, "n-0", "n-0")), "two members are on node n-0"},
		{"A", "started", 1, startedOn(8, on(8, "m")), "are not in the cluster"},
		{"B", "started", 1, startedOn(8, on(4, "n-0", "l")), "GPUs of model L40S"},
		{"A", "started", 2, startedOn(8, on(8, "n-1")), "takes nothing new"},
		{"A", "started", 2, started(func(f *Started) { f.Attempt = 3 }), "that is attempt 3 after 1"},
		{"A", "started", 2, started(func(f *Started) { f.ResumedFrom = 0 }), "it goes on from 0s, and had saved 25s"},
		{"A", "started", 2, started(func(f *Started) { f.ResumedFrom = Seconds(seconds(61)) }), "it goes on from 1m1s"},
		{"B", "started", 1, started(func(f *Started) { f.ResumedFrom = 1 }), "it cannot have a checkpoint"},
		{"A", "started", 1, started(func(f *Started) { f.Warm = 1 }), "are said to be warm"},
		{"A", "started", 1, twice, "it runs already"},
		{"A", "stopped", 1, gone, "are held already"},
		{"A", "checkpointed", 1, instead(Checkpointed{Seconds(seconds(70))}), "1m10s are done"},
		{"A", "stopped", 1, instead(Pending{gang.CodeCapacity, "why not"}), "it runs"},
		{"A", "checkpointed", 1, instead(Resizing{16, 8}), "it has 8 GPUs"},
		{"B", "stopped", 1, later(1), "it ran for 11s, and had 10s to do"},
		{"B", "stopped", 1, later(-13), "time went back"},
		{"B", "stopped", 1, instead(Stopped{CauseFinished, -1}), "less than nothing"},
		{"B", "stopped", 1, instead(Stopped{CauseMaxRun, 0}), "said to have succeeded"},
		{"B", "finished", 1, instead(Finished{Failed}), "said to have failed"},
		{"B", "finished", 1, twice, "come to its end before"},
		{"B", "stopped", 1, gone, "it still runs"},
		{"B", "started", 1, gone, "it does not run"},
		{"", "summary", 1, twice, "something follows the summary"},
		{"", "summary", 1, summary(func(s *Summary) { s.Preemptions = 0 }), "0 preemptions are told of 1"},
		{"", "summary", 1, summary(func(s *Summary) { s.GPUSeconds.Lost++ }), "are accounted for"},
		{"", "summary", 1, summary(func(s *Summary) { s.GPUSeconds.Lost--; s.GPUSeconds.Useful++ }), "something is less than nothing"},
		{"", "summary", 1, summary(func(s *Summary) { s.PerTenant = map[string]TenantSummary{"default": {GPUSeconds: 1}} }), "tenant default is charged 1"},
	} {
		var records []Record
		nth := 0
		for _, r := range sound {
			if r.Gang == c.gang && r.Fact.Event() == c.event {
				if nth++; nth == c.nth {
					records = append(records, c.change(r)...)
					continue
				}
			}
			records = append(records, r)
		}
		checker := NewChecker(s)
		var err error
		for i := 0; i < len(records) && err == nil; i++ {
			err = checker.Take(records[i])
		}
		if nth < c.nth || err == nil || !strings.Contains(err.Error(), c.words) {
			t.Errorf("%s %s: %v, want %q", c.gang, c.event, err, c.words)
		}
	}
}

// What a node's loss ends must be over in that moment.
func TestCheckerFindsWhatIsHeldTooLong(t *testing.T) {
	for name, trouble := range map[string]string{
		"node":  happens("20s", "node_down", "node = \"n\""),
		"GPU":   happens("20s", "gpu_bad", "node = \"n\"\n gpu = 7"),
		"spot":  happens("10s", "spot_notice", "node = \"n\"\n notice = \"10s\""),
		"cap":   "tenant \"default\" {\n max_gpus = 7\n}\n",
		"start": happens("0s", "gpu_bad", "node = \"n\"\n gpu = 7"),
	} {
		c := NewChecker(read(t, "cluster {\n node \"n\" {}\n}\n"+one("")+trouble))
		err := error(nil)
		for _, r := range []Record{
			{0, "A", Submitted{"default", "production", 8}},
			{0, "A", Started{Attempt: 1, GPUs: 8, Members: on(8, "n")}},
			{seconds(60), "A", Stopped{CauseFinished, 0}},
		} {
			if err == nil {
				err = c.Take(r)
			}
		}
		if err == nil {
			t.Errorf("%s: nothing was found", name)
		}
	}
}
