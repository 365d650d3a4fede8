package link

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/gangd/gangd/internal/gang"
	"github.com/gangd/gangd/internal/link/linkpb"
)

func TestStreamsBeginWithAHello(t *testing.T) {
	a := startAgent(t, "", nil)
	node, err := dial(t, a.address).Node(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := node.Send(beatOf(1)); err != nil {
		t.Fatal(err)
	}
	if _, err := node.Recv(); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "hello") {
		t.Errorf("a node that beats before its hello: %v", err)
	}
	for name, first := range map[string]*linkpb.KeeperReport{
		"a report before the hello": stepOf(1), "a hello without a lane": admitOf("", linkpb.LaneState_LANE_STATE_NEW), "nothing": {},
	} {
		k, err := dial(t, a.address).Keeper(testContext(t))
		if err != nil {
			t.Fatal(err)
		}
		if err := k.Send(first); err != nil {
			t.Fatal(err)
		}
		if _, err := k.Recv(); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "lane") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if events, _ := a.all(); len(events) > 0 {
		t.Errorf("refused streams were observed: %v", events)
	}
}

func TestTheFirstAnswerSaysWhoLeads(t *testing.T) {
	a := startAgent(t, "", func(s *Server) { s.SetLeader(false, "10.0.0.7:4751", gang.Fence{Epoch: 1, Index: 5}) })
	c, ctx := dial(t, a.address), testContext(t)
	node, err1 := c.Node(ctx)
	device, err2 := c.Device(ctx)
	keeper, err3 := c.Keeper(ctx)
	if err := errors.Join(err1, err2, err3, node.Send(helloOf("u")), keeper.Send(admitOf("l", linkpb.LaneState_LANE_STATE_NEW))); err != nil {
		t.Fatal(err)
	}
	n, err1 := node.Recv()
	d, err2 := device.Recv() // before it sends anything
	k, err3 := keeper.Recv()
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatal(err)
	}
	for name, l := range map[string]*linkpb.Leader{"node": n.GetLeader(), "device": d.GetLeader(), "keeper": k.GetLeader()} {
		if l.GetSelf() || l.GetAddress() != "10.0.0.7:4751" || l.GetFence().GetIndex() != 5 {
			t.Errorf("the %s stream begins with %v", name, l)
		}
	}
}

func TestBeatsAreEchoed(t *testing.T) {
	a := startAgent(t, "", nil)
	node, err := dial(t, a.address).Node(testContext(t))
	if err := errors.Join(err, node.Send(helloOf("u")), node.Send(beatOf(41))); err != nil {
		t.Fatal(err)
	}
	for {
		order, err := node.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if echo := order.GetEcho(); echo != nil {
			if echo.Sequence != 41 {
				t.Errorf("the echo of beat 41 is %d", echo.Sequence)
			}
			return
		}
	}
}

func TestOrdersCarryTheTerm(t *testing.T) {
	a := startAgent(t, "", leads(gang.Fence{Epoch: 2, Index: 7}))
	if a.Send(keeperNamed("lane"), &linkpb.KeeperOrder{}) {
		t.Error("an order to a lane without a keeper was taken")
	}
	k := openKeeper(t, a, "lane", linkpb.LaneState_LANE_STATE_IDLE)
	forged := &linkpb.Fence{Epoch: 9, Index: 9}
	if !a.Send(keeperNamed("lane"), &linkpb.KeeperOrder{Fence: forged, Order: &linkpb.KeeperOrder_Run{Run: &linkpb.Run{Gang: "g", Attempt: 3}}}) {
		t.Fatal("the order was not taken")
	}
	order := k.next()
	for order.GetLease() != nil {
		order = k.next()
	}
	if f := order.GetFence(); order.GetRun().GetGang() != "g" || f.GetEpoch() != 2 || f.GetIndex() != 7 {
		t.Errorf("got %v, want the run of g under 2.7", order)
	}
}

// A new leader must hear from everybody where they stand.
func TestStreamsRestartWhenTheAgentBeginsToLead(t *testing.T) {
	a := startAgent(t, "", nil)
	k := openKeeper(t, a, "lane", linkpb.LaneState_LANE_STATE_IDLE)
	a.SetLeader(true, "", gang.Fence{Epoch: 1, Index: 2})
	for {
		if _, err := k.Recv(); err != nil {
			if status.Code(err) != helloAgain {
				t.Errorf("the stream ended with %v", err)
			}
			break
		}
	}
	await[KeeperGone](t, a.recorder, 1)
}

// Whoever leads, a keeper that may run has its lease renewed; one that may not
// never gets one.
func TestLeases(t *testing.T) {
	lease := func(o *linkpb.KeeperOrder) bool { return o.GetLease() != nil }
	for _, c := range []struct {
		name    string
		leads   bool
		state   linkpb.LaneState
		renewed bool
	}{
		{"the leader, a new lane", true, linkpb.LaneState_LANE_STATE_NEW, false},
		{"a follower, a new lane", false, linkpb.LaneState_LANE_STATE_NEW, false},
		{"a follower, a lane that loads", false, linkpb.LaneState_LANE_STATE_LOADING, true},
		{"a follower, a lane that runs", false, linkpb.LaneState_LANE_STATE_BUSY, true},
		{"the leader, a lane that runs", true, linkpb.LaneState_LANE_STATE_BUSY, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := startAgent(t, "", func(s *Server) {
				s.renewEvery = time.Millisecond
				s.SetLeader(c.leads, "", gang.Fence{Epoch: 1, Index: 1})
			})
			k := openKeeper(t, a, "lane", c.state)
			for range 5 { // five renewals; the first word is who leads
				order, err := k.Recv()
				if err != nil {
					t.Fatal(err)
				}
				if lease(order) && !c.renewed {
					t.Fatalf("a lane that was not admitted got %v", order)
				}
			}
			if c.renewed {
				if order := k.next(); order.GetLease().GetLeaseMillis() != uint32(Lease.Milliseconds()) {
					t.Errorf("got %v, want a lease of %s", order, Lease)
				}
			}
		})
	}
}

func TestNoLeaseBeforeTheAdmissionNorAfterARefusal(t *testing.T) {
	a := startAgent(t, "", func(s *Server) {
		s.renewEvery = time.Millisecond
		s.SetLeader(true, "", gang.Fence{Epoch: 1, Index: 1})
	})
	for range 20 {
		k := openKeeper(t, a, "lane", linkpb.LaneState_LANE_STATE_NEW)
		a.Send(keeperNamed("lane"), &linkpb.KeeperOrder{Order: &linkpb.KeeperOrder_Admitted{Admitted: &linkpb.Admitted{LeaseMillis: 15000}}})
		if order := k.next(); order.GetAdmitted() == nil {
			t.Fatalf("the first order is %v, want the admission", order)
		}
		if order := k.next(); order.GetLease() == nil {
			t.Fatalf("after the admission came %v, want a lease", order)
		}
		a.Send(keeperNamed("lane"), &linkpb.KeeperOrder{Order: &linkpb.KeeperOrder_NotAdmitted{NotAdmitted: &linkpb.Refused{Reason: "closing"}}})
		for order := k.next(); order.GetNotAdmitted() == nil; order = k.next() {
			if order.GetLease() == nil {
				t.Fatalf("got %v", order)
			}
		}
		for range 3 {
			order, err := k.Recv()
			if err != nil {
				t.Fatal(err)
			}
			if order.GetLease() != nil {
				t.Fatal("a lane that was refused got a lease")
			}
		}
	}
}

func TestTheNewestStreamOfAKeeperCounts(t *testing.T) {
	a := startAgent(t, "", leads(gang.Fence{Epoch: 1, Index: 1}))
	first := openKeeper(t, a, "lane", linkpb.LaneState_LANE_STATE_IDLE)
	second := openKeeper(t, a, "lane", linkpb.LaneState_LANE_STATE_IDLE)
	if !a.Send(keeperNamed("lane"), &linkpb.KeeperOrder{Order: &linkpb.KeeperOrder_Close{Close: &linkpb.Close{Reason: "idle"}}}) {
		t.Fatal("the order was not taken")
	}
	for second.next().GetClose() == nil {
	}
	finish(t, first)
	if events, _ := a.all(); slices.Contains(events, Event(KeeperGone{keeperNamed("lane")})) {
		t.Error("the lane is gone with its old stream")
	}
	finish(t, second)
	if got := await[KeeperGone](t, a.recorder, 1); got[0].Keeper.Lane != "lane" {
		t.Errorf("%v is gone", got)
	}
	if a.Send(keeperNamed("lane"), &linkpb.KeeperOrder{}) {
		t.Error("an order was taken for a lane whose keeper is gone")
	}
}

// finish ends a stream from the client's side, and waits for the agent's.
func finish(t *testing.T, k *keeper) {
	t.Helper()
	if err := k.CloseSend(); err != nil {
		t.Fatal(err)
	}
	for {
		order, err := k.Recv()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil || order.GetClose() != nil {
			t.Fatalf("the stream ended with %v, %v", order, err)
		}
	}
}

// What a keeper said is observed in order, and before its end.
func TestReportsOfAStreamAreObservedInOrder(t *testing.T) {
	a := startAgent(t, "", nil)
	k := openKeeper(t, a, "lane", linkpb.LaneState_LANE_STATE_BUSY)
	const steps = 200
	for i := range uint32(steps) {
		k.say(stepOf(i))
	}
	if err := k.CloseSend(); err != nil {
		t.Fatal(err)
	}
	await[KeeperGone](t, a.recorder, 1)
	events, _ := a.all()
	if len(events) != steps+2 {
		t.Fatalf("%d events, want the hello, %d steps and the end", len(events), steps)
	}
	for i := range uint32(steps) {
		if got := events[i+1].(KeeperReported).Report.GetStep(); got == nil || got.I != i {
			t.Fatalf("event %d is %v, want step %d", i+1, events[i+1], i)
		}
	}
}

// A keeper that takes nothing is let go; it will come back and say where it
// stands.
func TestAStuckKeeperIsDisconnected(t *testing.T) {
	a := startAgent(t, "", leads(gang.Fence{Epoch: 1, Index: 1}))
	k := openKeeper(t, a, "lane", linkpb.LaneState_LANE_STATE_IDLE)
	run := &linkpb.Run{Gang: "g", Params: make([]byte, 256<<10)}
	taken := 0
	for a.Send(keeperNamed("lane"), &linkpb.KeeperOrder{Order: &linkpb.KeeperOrder_Run{Run: run}}) {
		if taken++; taken > 100*maxQueuedOrders {
			t.Fatal("orders pile up without a limit")
		}
	}
	if taken < maxQueuedOrders {
		t.Errorf("%d orders were taken, want at least %d", taken, maxQueuedOrders)
	}
	await[KeeperGone](t, a.recorder, 1)
	for {
		if _, err := k.Recv(); err != nil {
			if status.Code(err) != codes.ResourceExhausted {
				t.Errorf("the stream ended with %v", err)
			}
			return
		}
	}
}

// Nomad may start a second allocation of a lane: its keeper is another, and
// neither takes the other's orders, or its place.
func TestTwoKeepersOfOneLaneAreApart(t *testing.T) {
	a := startAgent(t, "", leads(gang.Fence{Epoch: 1, Index: 7}))
	first := openKeeper(t, a, "lane", linkpb.LaneState_LANE_STATE_BUSY)
	stream, err := dial(t, a.address).Keeper(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	second := &keeper{t, stream}
	asks := admitOf("lane", linkpb.LaneState_LANE_STATE_NEW)
	asks.GetAdmit().Allocation = "another"
	second.say(asks)
	await[KeeperReported](t, a.recorder, 2)
	refused := &linkpb.KeeperOrder{Order: &linkpb.KeeperOrder_NotAdmitted{NotAdmitted: &linkpb.Refused{Reason: "one is enough"}}}
	if !a.Send(Keeper{"lane", "another"}, refused) {
		t.Fatal("the second keeper cannot be reached")
	}
	if got := second.next().GetNotAdmitted(); got == nil {
		t.Error("the second keeper got another order than its own")
	}
	if err := second.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if got := await[KeeperGone](t, a.recorder, 1); got[0].Keeper.Allocation != "another" {
		t.Errorf("gone is %+v", got[0])
	}
	if !a.Send(keeperNamed("lane"), &linkpb.KeeperOrder{Order: &linkpb.KeeperOrder_Close{Close: &linkpb.Close{}}}) {
		t.Fatal("the first keeper cannot be reached any more")
	}
	for {
		if order := first.next(); order.GetClose() != nil {
			break
		} else if order.GetLease() == nil {
			t.Fatalf("the first keeper got %v", order)
		}
	}
}
