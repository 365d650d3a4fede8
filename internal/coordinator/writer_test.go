package coordinator

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/gangd/gangd/internal/gang"
)

// aWriter is a writer of a term that goes on as long as f.
func aWriter(t *testing.T, f func(b *bench, w *writer, inputs <-chan Input)) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench()
		ctx, end := context.WithCancelCause(t.Context())
		inputs := make(chan Input, maxInputs)
		w := newWriter(b.loop, &term{ctx: ctx, end: end, full: b.loop.cfg.Metrics.full, inputs: inputs}, &benchTerm{bench: b})
		f(b, w, inputs)
		end(nil)
		w.calls.Wait()
		if len(w.last) > 0 {
			t.Errorf("%d calls are remembered", len(w.last))
		}
	})
}

// Nomad may be away for long: it is asked for so many lanes at a time, and what
// goes elsewhere does not wait for it.
func TestCallsHaveALimitAndDoNotWaitForOneAnother(t *testing.T) {
	aWriter(t, func(b *bench, w *writer, inputs <-chan Input) {
		opening := make(chan struct{})
		b.opening = opening
		for i := range maxCalls + 10 {
			w.do(OpenLane{Lane: gang.LaneID(fmt.Sprint(i)), Job: fmt.Sprint(i)})
		}
		synctest.Wait()
		w.do(Publish{Run: Run{Gang: "sea-00000000", Attempt: 1}})
		synctest.Wait()
		b.set(func() {
			if b.inNomad != maxCalls || !slices.Equal(b.calls, []string{"publish gangs/sea-00000000.json"}) {
				t.Errorf("%d calls to Nomad are under way, and done is %v", b.inNomad, b.calls)
			}
		})
		close(opening)
		synctest.Wait()
		if n := len(inputs); n != maxCalls+10+1 {
			t.Errorf("the core is told of %d calls", n)
		}
	})
}

// Nomad tells of a stray lane with each change of it, whether its servers can be
// asked to purge it or not.
func TestAStrayJobIsPurgedOnceAtATime(t *testing.T) {
	aWriter(t, func(b *bench, w *writer, inputs <-chan Input) {
		purging := make(chan struct{})
		b.purging = purging
		for range 100 {
			w.do(PurgeLane{Lane: "stray", Job: "gangd.ddim.n.stray"})
			synctest.Wait()
		}
		w.do(PurgeLane{Lane: "other", Job: "gangd.ddim.n.other"})
		close(purging)
		synctest.Wait()
		// One was under way: what came after it may be news that it missed.
		if n := len(inputs); n != 3 {
			t.Errorf("%d jobs are purged: %v", n, b.calls)
		}
	})
}

func TestCallsEndWithTheirTerm(t *testing.T) {
	aWriter(t, func(b *bench, w *writer, _ <-chan Input) {
		opening := make(chan struct{})
		b.opening = opening
		for i := range 3 * maxCalls {
			w.do(OpenLane{Lane: gang.LaneID(fmt.Sprint(i % (2 * maxCalls))), Job: fmt.Sprint(i)})
		}
		synctest.Wait()
		w.term.end(context.Canceled)
		close(opening)
		synctest.Wait()
		if len(b.calls) != maxCalls {
			t.Errorf("%d calls are made, and %d were under way at the end", len(b.calls), maxCalls)
		}
	})
}
