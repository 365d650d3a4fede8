package coordinator

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gangd/gangd/internal/gang"
)

// versions are those that the lanes of a gang's attempt were ordered from, and
// those in their records.
func (w *world) versions(id gang.ID) (ordered, written []uint64) {
	for _, m := range w.core.gangs[id].rec.Members {
		for _, a := range w.calls[string(m.Lane)] {
			if open, is := a.(OpenLane); is {
				ordered = append(ordered, open.TemplateVersion)
			}
		}
		l, err := gang.DecodeLane(gang.LaneKey(m.Node, m.Lane), w.kv[gang.LaneKey(m.Node, m.Lane)])
		w.must(err)
		written = append(written, l.TemplateVersion)
	}
	return ordered, written
}

// changeTemplate is an operator's; Nomad keeps no older versions than kept.
func (w *world) changeTemplate(kept uint64) {
	w.version++
	w.kept = kept
	w.post("nomad", TemplateSeen{"ddim", w.version})
}

func TestLanesOfAnAttemptAreOfOneVersionOfTheTemplate(t *testing.T) {
	w := ready(t, 30, 2, 2)
	w.version = 7 // the news of it is still under way
	id := w.submit(simSpec(16, 8))
	want := []uint64{7, 7}
	if ordered, written := w.versions(id); !slices.Equal(ordered, want) || !slices.Equal(written, want) {
		t.Errorf("lanes are ordered from versions %d, and written %d", ordered, written)
	}
	lanes := w.core.gangs[id].rec.Members
	w.call(string(lanes[0].Lane))
	w.changeTemplate(1)
	w.until(2, "the news of the change", func() bool { return w.core.templates["ddim"].version == 8 })
	w.restart(2)
	if ordered, _ := w.versions(id); !slices.Equal(ordered, want) {
		t.Errorf("after gangd's restart lanes are ordered from versions %d", ordered)
	}
	w.until(2, "success", func() bool { return w.state(id) == gang.Succeeded })
	if rec := w.core.gangs[id].rec; rec.Attempt != 1 {
		t.Errorf("attempt %d", rec.Attempt)
	}
	next := w.submit(simSpec(16, 8))
	w.until(2, "the next launch", func() bool { return w.state(next) == gang.Launching })
	if ordered, _ := w.versions(next); !slices.Equal(ordered, []uint64{8, 8}) {
		t.Errorf("the next gang's lanes are ordered from versions %d", ordered)
	}
}

// Late news of an older version changes nothing, and neither does news of a
// job that no gang is of.
func TestVersionsOfTemplatesOnlyGrow(t *testing.T) {
	w := ready(t, 31, 2, 2)
	w.version = 7
	w.submit(simSpec(1, 1))
	w.tell(TemplateSeen{"ddim", 6})
	w.tell(TemplateSeen{"other", 9})
	if v := w.core.templates; len(v) != 1 || v["ddim"].version != 7 {
		t.Errorf("versions %+v", v)
	}
}

// A version that Nomad no longer keeps is nobody's failure: the gang starts
// anew, on the same nodes if need be, from what is there.
func TestAVersionThatIsGoneStartsTheAttemptAnew(t *testing.T) {
	for name, told := range map[string]bool{"and the next one is known": true, "and nothing is known of the next one": false} {
		t.Run(name, func(t *testing.T) {
			w := ready(t, 32, 2, 2)
			w.version = 7
			id := w.submit(simSpec(16, 8))
			w.version, w.kept = 8, 8
			if told {
				w.tell(TemplateSeen{"ddim", 8})
			}
			w.until(2, "second attempt", func() bool { return w.core.gangs[id].rec.Attempt == 2 })
			want := []uint64{8, 8}
			if !told {
				want = []uint64{0, 0}
			}
			if ordered, _ := w.versions(id); !slices.Equal(ordered, want) {
				t.Errorf("lanes are ordered from versions %d, want %d", ordered, want)
			}
			rec := w.core.gangs[id].rec
			if rec.Failures != 0 || len(rec.Avoid) != 0 || !strings.Contains(rec.Why, "template ddim was changed") {
				t.Errorf("failures %d, avoids %v, why %q", rec.Failures, rec.Avoid, rec.Why)
			}
			w.until(2, "success", func() bool { return w.state(id) == gang.Succeeded })
			if n := w.core.gangs[id].rec.Attempt; n != 2 {
				t.Errorf("attempt %d", n)
			}
		})
	}
}

// The newest version cannot be gone; what says so is a failure like others, of
// which there are not too many.
func TestTheNewestVersionIsNotAskedForWithoutEnd(t *testing.T) {
	w := ready(t, 33, 2, 2)
	w.version = 0
	id := w.submit(simSpec(8, 8))
	w.tell(LaneOpened{Lane: w.core.gangs[id].rec.Members[0].Lane, Err: ErrTemplateVersion})
	if rec := w.core.gangs[id].rec; rec.Failures != 1 {
		t.Errorf("failures %d", rec.Failures)
	}
}

func TestATemplateThatWillNotDoFailsItsGangAtOnce(t *testing.T) {
	w := ready(t, 42, 2, 2)
	id := w.submit(simSpec(8, 8))
	w.tell(LaneOpened{Lane: w.core.gangs[id].rec.Members[0].Lane, Err: fmt.Errorf("open lane: %w", ErrTemplate)})
	if rec := w.core.gangs[id].rec; rec.State != gang.Failed || rec.Failures != 0 || !strings.Contains(rec.Why, "template ddim: open lane") {
		t.Errorf("it is %s, failures %d: %s", rec.State, rec.Failures, rec.Why)
	}
}

func TestAGangTakesWhatItsTemplateSays(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context, b *bench) {
		own := simSpec(1, 1)
		own.Estimate = time.Minute
		specs := []gang.Spec{simSpec(1, 1), own}
		statuses, err := b.loop.Submit(ctx, specs)
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range []time.Duration{90 * time.Second, time.Minute} {
			spec, err := gang.DecodeSpec("", b.kv[gang.SpecKey(statuses[i].ID)])
			if err != nil || spec.Estimate != want || statuses[i].Spec.Estimate != want {
				t.Errorf("gang %d has the estimate %s, and %s in the store, want %s (%v)", i, statuses[i].Spec.Estimate, spec.Estimate, want, err)
			}
			if spec.ReadyTimeout != 10*time.Minute {
				t.Errorf("gang %d may load for %s by the store", i, spec.ReadyTimeout)
			}
		}
		if specs[0].Estimate != 0 {
			t.Error("the caller's specification was changed")
		}
	})
}

func TestLanesAreOpenedFromTheTemplateThatWasChecked(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context, b *bench) {
		b.set(func() { b.refuse = fmt.Errorf("open lane: %w", ErrTemplateVersion) })
		if _, err := b.loop.Submit(ctx, []gang.Spec{simSpec(8, 8)}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		b.set(func() {
			// The one that is gone is not asked for again.
			if len(b.opened) != 2 || b.opened[0].TemplateVersion != 7 || b.opened[1].TemplateVersion != 0 {
				t.Errorf("opened %+v", b.opened)
			}
		})
	})
}

// refuseConfig has Nomad say that a node does not take the template's config.
func (w *world) refuseConfig(id gang.ID, member int) (node string) {
	m := w.core.gangs[id].rec.Members[member]
	w.tell(LaneJobChanged{LaneJob{
		Job: w.core.lanes[m.Lane].rec.Job, Lane: m.Lane, Allocation: "alloc-" + string(m.Lane), Ended: true, Failed: true, Invalid: true,
		Message: `Failed Validation: no variable named "meta.x"`,
	}})
	return m.Node
}

// withoutKeepers has Nomad start nothing by itself.
func (w *world) withoutKeepers() {
	for _, n := range w.nodes {
		n.silent = true
	}
}

func TestATemplateThatOneNodeRefusesIsTriedOnAnother(t *testing.T) {
	w := ready(t, 34, 4, 2)
	w.withoutKeepers()
	id := w.submit(simSpec(8, 8))
	first := w.refuseConfig(id, 0)
	w.until(2, "second attempt", func() bool { return w.core.gangs[id].rec.Attempt == 2 })
	rec := w.core.gangs[id].rec
	if rec.Failures != 1 || !slices.Equal(rec.Avoid, []string{first}) || !strings.Contains(rec.Why, `Failed Validation: no variable named "meta.x"`) {
		t.Fatalf("failures %d, avoids %v, why %q", rec.Failures, rec.Avoid, rec.Why)
	}
	for _, n := range w.nodes {
		n.silent = false
	}
	w.until(2, "success", func() bool { return w.state(id) == gang.Succeeded })
}

func TestATemplateThatTwoNodesRefuseFailsTheGang(t *testing.T) {
	for name, gpus := range map[string]int{"one after the other": 8, "at one time": 16} {
		t.Run(name, func(t *testing.T) {
			w := ready(t, 35, 4, 2)
			w.withoutKeepers()
			id := w.submit(simSpec(gpus, 8))
			lanes := w.core.gangs[id].rec.Members
			w.refuseConfig(id, 0)
			if gpus == 16 { // while the gang is stopped already
				w.tell(LaneJobChanged{LaneJob{Lane: lanes[1].Lane, Allocation: "alloc", Ended: true, Failed: true, Invalid: true, Message: "Failed Validation"}})
			}
			w.until(2, "second attempt", func() bool { return w.core.gangs[id].rec.Attempt == 2 })
			w.refuseConfig(id, 0)
			w.until(2, "end", func() bool { return w.state(id).Terminal() })
			rec := w.core.gangs[id].rec
			if rec.State != gang.Failed || rec.Attempt != 2 || rec.Failures != 1 || !strings.Contains(rec.Why, "template ddim: two nodes refuse its config: its allocation on client-") {
				t.Errorf("it is %s in attempt %d, failures %d, why %q", rec.State, rec.Attempt, rec.Failures, rec.Why)
			}
		})
	}
}

// A template's own timeout counts for its gangs, also after gangd's restart and
// whatever the agents' is.
func TestATemplatesReadyTimeoutGoesBeforeTheAgents(t *testing.T) {
	for _, c := range []struct {
		own, want time.Duration
		advice    string
	}{
		{0, 20 * time.Second, "raise start.ready_timeout of gangd's agents, or give the template a ready_timeout in its config"},
		{2 * time.Minute, 2 * time.Minute, "raise ready_timeout in the config of template ddim"},
		{5 * time.Second, 5 * time.Second, "raise ready_timeout in the config of template ddim"},
	} {
		t.Run(c.want.String(), func(t *testing.T) {
			w := ready(t, 36, 2, 2)
			w.withoutKeepers()
			spec := simSpec(8, 8)
			spec.ReadyTimeout = c.own
			id := w.submit(spec)
			for _, when := range []string{"at first", "after a restart"} {
				began := w.now
				if when == "after a restart" {
					w.restart(2)
				}
				w.now = began.Add(c.want - time.Second)
				w.core.Step(w.now, Tick{})
				if w.state(id) != gang.Launching {
					t.Fatalf("%s it is %s a second before its time", when, w.state(id))
				}
			}
			w.now = w.now.Add(2 * time.Second)
			w.core.Step(w.now, Tick{})
			rec := w.core.gangs[id].rec
			if rec.Failures != 1 || !strings.HasPrefix(rec.Why, fmt.Sprintf("not all members were ready within %s: member 0 on ", c.want)) || !strings.HasSuffix(rec.Why, c.advice) {
				t.Errorf("failures %d, why %q", rec.Failures, rec.Why)
			}
		})
	}
}
