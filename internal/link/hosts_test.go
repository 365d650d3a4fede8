package link

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/gangd/gangd/internal/gang"
)

func quiet(s *Server) { s.silentAfter = 90 * time.Millisecond }

func TestSilence(t *testing.T) {
	a := startAgent(t, "", quiet)
	node, err := dial(t, a.address).Node(testContext(t))
	if err := errors.Join(err, node.Send(helloOf("u0", "u1"))); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		// Nothing is said: the host is suspected, once, with all its GPUs.
		silent := await[HostSilent](t, a.recorder, i+1)
		if got := silent[i].UUIDs; !slices.Equal(got, []string{"u0", "u1"}) {
			t.Fatalf("%v is silent, want [u0 u1]", got)
		}
		heard, ok := a.LastHeard("u1")
		if !ok || time.Since(heard) < a.silentAfter {
			t.Errorf("it was heard %s ago, %t; want at least %s", time.Since(heard), ok, a.silentAfter)
		}
		if err := node.Send(beatOf(uint64(i))); err != nil {
			t.Fatal(err)
		}
		if got := await[HostHeard](t, a.recorder, i+1)[i].UUIDs; !slices.Equal(got, []string{"u0", "u1"}) {
			t.Fatalf("%v is heard again, want [u0 u1]", got)
		}
	}
	// Silence and its end alternate, whatever the threads do.
	events, _ := a.all()
	silent := false
	for _, e := range events {
		switch e.(type) {
		case HostSilent:
			if silent {
				t.Fatalf("suspected twice: %v", events)
			}
			silent = true
		case HostHeard:
			if !silent {
				t.Fatalf("heard again without having been silent: %v", events)
			}
			silent = false
		}
	}
}

// An agent that begins to lead has ended all streams itself: whoever takes a
// pause before it comes back is not silent.
func TestNobodyIsSilentRightAfterTheAgentBeginsToLead(t *testing.T) {
	a := startAgent(t, "", func(s *Server) { s.silentAfter = 300 * time.Millisecond })
	node, err := dial(t, a.address).Node(testContext(t))
	if err := errors.Join(err, node.Send(helloOf("u0"))); err != nil {
		t.Fatal(err)
	}
	await[DriverHello](t, a.recorder, 1)
	began := time.Now()
	a.SetLeader(true, "", gang.Fence{Epoch: 1, Index: 1})
	before := len(await[HostSilent](t, a.recorder, 0))
	await[HostSilent](t, a.recorder, before+1)
	if after := time.Since(began); after < backoffMax {
		t.Errorf("it was suspected after %s", after)
	}
}

// The clock of these is driven by hand: nothing serves.
func idle() (*Server, *recorder) {
	r := newRecorder()
	return NewServer(hclog.NewNullLogger(), r.observe), r
}

func age(s *Server, by time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.hosts.byUUID {
		h.heard = h.heard.Add(-by)
	}
}

func TestAHostIsSilentAfterNineTenthsOfASecond(t *testing.T) {
	s, _ := idle()
	s.join([]string{"u0"})
	now := time.Now()
	if got := s.silentSince(now.Add(-SilentAfter)); len(got) > 0 {
		t.Errorf("%v is silent at once", got)
	}
	if got := s.silentSince(now.Add(time.Millisecond)); len(got) != 1 {
		t.Errorf("silent hosts: %v, want one", got)
	}
	if got := s.silentSince(now.Add(time.Hour)); len(got) > 0 {
		t.Errorf("%v is told twice", got)
	}
}

// Two keepers were heard before the driver told which GPUs are on one host.
// From then on each of them speaks for all of it.
func TestAnyProcessSpeaksForItsHost(t *testing.T) {
	s, _ := idle()
	s.join([]string{"u0", "u1"})
	s.join([]string{"u6", "u7"})
	s.join([]string{"u9"}) // another host
	s.join([]string{"u0", "u1", "u2", "u3", "u4", "u5", "u6", "u7"})
	age(s, time.Minute)
	s.join([]string{"u6", "u7"})
	silent := s.silentSince(time.Now().Add(-SilentAfter))
	if len(silent) != 1 || !slices.Equal(silent[0], []string{"u9"}) {
		t.Errorf("%v are silent, want [u9] alone", silent)
	}
	if heard, ok := s.LastHeard("u2"); !ok || time.Since(heard) > time.Minute/2 {
		t.Errorf("the GPU u2 was heard of %s ago, %t", time.Since(heard), ok)
	}
	if _, ok := s.LastHeard("u8"); ok {
		t.Error("a GPU was heard of that nobody told of")
	}
}

func TestTheNewestDriverOfAHostCounts(t *testing.T) {
	s, r := idle()
	h := s.join([]string{"u0"})
	first := s.driverUp(h, helloOf("u0").GetHello())
	second := s.driverUp(h, helloOf("u0").GetHello())
	s.driverGone(h, first)
	if events, _ := r.all(); len(events) != 2 {
		t.Errorf("events %v, want two hellos", events)
	}
	s.driverGone(h, second)
	if got := await[DriverGone](t, r, 1); !slices.Equal(got[0].UUIDs, []string{"u0"}) {
		t.Errorf("%v is gone", got)
	}
}
