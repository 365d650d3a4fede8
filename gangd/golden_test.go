package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gangd/gangd/internal/gang"
)

var rewrite = flag.Bool("update", false, "rewrite the expected output")

// session is one command line on a terminal of a test.
type session struct {
	args    []string
	stdin   string
	live    bool
	address string
}

// play runs a command line and returns all that a user would see.
func play(ctx context.Context, s session) (code int, out, errOut string) {
	var o, e bytes.Buffer
	t := &terminal{
		in: strings.NewReader(s.stdin), out: &o, err: &e, live: s.live, bold: s.live,
		width: func() int { return 100 }, now: func() time.Time { return clock },
		getenv: func(name string) string {
			if name == "GANGD_ADDR" {
				return s.address
			}
			return ""
		},
	}
	code = run(ctx, t, s.args)
	return code, o.String(), e.String()
}

// transcript is what a golden file holds.
func transcript(s session, code int, out, errOut string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "$ gangd %s\n%s", strings.Join(s.args, " "), out)
	if errOut != "" {
		fmt.Fprintf(&b, "--- stderr\n%s", errOut)
	}
	fmt.Fprintf(&b, "--- exit %d\n", code)
	return strings.NewReplacer(s.address, "http://agent", "\x1b", "<ESC>", "\r", "<CR>").Replace(b.String())
}

func compare(t *testing.T, name, got string) {
	t.Helper()
	golden := filepath.Join("testdata", name+".txt")
	if *rewrite {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("got:\n%s\nwant (%s):\n%s", got, golden, want)
	}
}

func TestQuestions(t *testing.T) {
	address := start(t, &world{gangs: testGangs(), nodes: testCluster(), shares: testShares(), windows: testWindows()})
	for name, args := range map[string]string{
		"status":               "status",
		"status-running":       "status sea",
		"status-queued":        "status lake-0a1b2",
		"status-succeeded":     "status hill-7v7v7v7v",
		"status-failed":        "status dune",
		"status-ambiguous":     "status lake",
		"status-unknown":       "status moon",
		"status-json":          "status -json lake-0a1bv",
		"status-two":           "status sea lake",
		"cancel":               "cancel sea",
		"cancel-json":          "cancel -json sea",
		"cancel-again":         "cancel lake-0a1bv",
		"cancel-ended":         "cancel dune",
		"cancel-none":          "cancel",
		"explain-queued":       "explain lake-0a1b2",
		"explain-running":      "explain sea",
		"explain-failed":       "explain dune",
		"explain-json":         "explain -json lake-0a1bv",
		"hold":                 "hold lake-0a1b2",
		"hold-running":         "hold sea",
		"release":              "release lake-0a1b2",
		"reorder-before":       "reorder lake-0a1b2 -before lake-0a1bv",
		"reorder-last":         "reorder -last lake-0a1b2",
		"reorder-two":          "reorder -last -first lake-0a1b2",
		"maintenance":          "maintenance",
		"maintenance-json":     "maintenance -json",
		"maintenance-no-node":  "maintenance rack -until 4h",
		"maintenance-no-until": "maintenance rack -all",
		"maintenance-when":     "maintenance rack -all -until tomorrow",
		"maintenance-no-name":  "maintenance -all -until 4h",
		"maintenance-domain":   "maintenance rack -domain l3 -until 4h",
		"maintenance-backward": "maintenance rack -all -from 2h -until 2020-01-01T00:00:00Z",
		"shares":               "shares",
		"shares-json":          "shares -json",
		"nodes":                "nodes",
		"nodes-one":            "nodes n-1",
		"nodes-by-id":          "nodes 70c4 -json",
		"nodes-unknown":        "nodes n-9",
		"version":              "version",
		"help":                 "-h",
		"command-none":         "",
		"command-unknown":      "frob",
		"command-unknown-help": "frob -h",
		"flag-unknown":         "nodes -jason",
		"address-wrong":        "nodes -address ftp://agent",
		"agent-without-config": "agent",
		"agent-unreadable":     "agent -config testdata/agent.hcl",
	} {
		t.Run(name, func(t *testing.T) {
			s := session{args: strings.Fields(args), address: address}
			code, out, errOut := play(t.Context(), s)
			compare(t, name, transcript(s, code, out, errOut))
		})
	}
}

func testWindows() []gang.WindowStatus {
	at := func(d time.Duration) int64 { return gang.Millis(clock.Add(d)) }
	return []gang.WindowStatus{
		{Window: gang.Window{Version: 1, Name: "now", From: at(-time.Hour), Until: at(time.Hour), Nodes: []string{"7f0a"}}, NodeNames: []string{"dgx-07"}},
		{Window: gang.Window{Version: 1, Name: "rack-3", From: at(5 * time.Hour), Until: at(9 * time.Hour), Level: "leaf", Domain: "l3"}},
		{Window: gang.Window{Version: 1, Name: "power", From: at(50 * time.Hour), Until: at(60 * time.Hour)}},
	}
}

// A window is planned, and called off.
func TestMaintenance(t *testing.T) {
	w := &world{}
	address := start(t, w)
	for _, c := range []struct {
		golden string
		args   []string
	}{
		{"maintenance-plan", []string{"maintenance", "rack", "-node", "dgx-01", "-node", "dgx-02", "-from", "30m", "-until", "4h"}},
		{"maintenance-delete", []string{"maintenance", "rack", "-delete"}},
		{"maintenance-none", []string{"maintenance", "rack", "-delete"}},
	} {
		s := session{args: c.args, address: address}
		code, out, errOut := play(t.Context(), s)
		compare(t, c.golden, transcript(s, code, out, errOut))
	}
}

func testShares() gang.Shares {
	return gang.Shares{
		Capacity: 30, Running: 24, Free: 6,
		Tenants: []gang.TenantShare{
			{Name: "acme", Weight: 2, Guaranteed: 8, Running: 8, Waiting: 1, Wanted: 64, Entitled: 20, Past: 6.25, GPUMillis: 90_000_000},
			{Name: "default", Weight: 1, MaxGPUs: 16, Running: 16, Waiting: 2, Wanted: 12, Entitled: 10, Past: 11.5, GPUMillis: 1_786_044},
		},
		Tiers: []gang.TierShare{
			{Name: "interactive", Priority: 300, Running: 8, Waiting: 1, Wanted: 64, OldestMillis: 61_000, Starts: 40, MedianMillis: 180, TargetMillis: 30_000, Met: 38},
			{Name: "background", Priority: 100, MinShare: 0.05, CreditGPUSeconds: 420, Running: 16, Waiting: 2, Wanted: 12, OldestMillis: 7_260_000, Starts: 256, MedianMillis: 95_000},
		},
	}
}

// What is wider than a terminal is cut there, and only there.
func TestAListFitsTheTerminal(t *testing.T) {
	s := session{args: []string{"status"}, live: true, address: start(t, &world{gangs: testGangs()})}
	code, out, errOut := play(t.Context(), s)
	compare(t, "status-live", transcript(s, code, out, errOut))
}

// A name that was used before still leads to the gang that lives.
func TestOfSeveralTheOneThatLives(t *testing.T) {
	ended, lives := testGangs()[3], seaRunning()
	ended.ID = "sea-00000000"
	address := start(t, &world{gangs: []gang.Status{lives, ended}})
	code, out, errOut := play(t.Context(), session{args: []string{"cancel", "sea"}, address: address})
	if code != exitOK || !strings.HasPrefix(out, string(lives.ID)+" is stopping") {
		t.Errorf("%d, %s%s", code, out, errOut)
	}
}

func TestEmptyCluster(t *testing.T) {
	address := start(t, &world{})
	for args, want := range map[string]string{"status": "No gangs\n", "nodes": "No nodes\n"} {
		if code, out, _ := play(t.Context(), session{args: []string{args}, address: address}); code != exitOK || out != want {
			t.Errorf("%s: %d, %q", args, code, out)
		}
	}
}

const seaHCL = "gang \"sea\" {\n  template = \"ddim\"\n  gpus = 16\n  gpus_per_node = 8\n}\n"

// life is a gang's way from acceptance to its end, with each kind of change.
func life(name string, end gang.State) []gang.Status {
	g := gang.Status{Record: gang.Record{Version: 1, ID: gang.NewID(name, [5]byte{}), State: gang.Queued, Template: "ddim", Tier: "production",
		Tenant: "default", GPUs: 16, PerNode: 8, Accepted: after(0)}}
	var all []gang.Status
	add := func(change func()) {
		change()
		all = append(all, g)
	}
	add(func() { g.Position, g.Code, g.Reason = 2, gang.CodeCapacity, "16 GPUs are wanted, 8 are free" })
	add(func() { g.Position = 1 })
	add(func() {
		g.State, g.Position, g.Code, g.Reason, g.Attempt = gang.Launching, 0, "", "", 1
		g.Lanes, g.Times.Decided = lanes(gang.LaneOpening), after(1200*time.Millisecond)
	})
	add(func() { g.State, g.Times.Started = gang.Running, after(2500*time.Millisecond) })
	for _, step := range []int{1, 2, 5, 8, 20} {
		add(func() {
			g.Progress = &gang.Progress{Stage: "denoise", Step: step, Steps: 20, StepMillis: 410}
		})
	}
	if end == gang.Succeeded {
		add(func() {
			g.State = gang.Finishing
			g.Attempts = []gang.Attempt{ended(1, 1200*time.Millisecond, 8*time.Second, "", 0, 1)}
		})
		g.Artifact = &gang.Artifact{Key: "sea/video.mp4", Bytes: 5, ContentType: "video/mp4",
			SHA256: "9088f7c5e9abe464d3476f785ffe6e7e16236f4c43fc06d365e29843b27019eb"}
	} else {
		add(func() {
			g.State, g.Target, g.Why = gang.Stopping, end, "rank 3 said: out of memory"
			g.Attempts = []gang.Attempt{ended(1, 1200*time.Millisecond, 8*time.Second, g.Why, 0, 1)}
		})
	}
	add(func() { g.State, g.Target, g.Progress, g.Times.Ended = end, "", nil, after(9*time.Second) })
	return all
}

func TestSubmit(t *testing.T) {
	good := &world{life: map[string][]gang.Status{"sea": life("sea", gang.Succeeded)}}
	corrupted := &world{life: map[string][]gang.Status{"sea": life("sea", gang.Succeeded)}}
	corrupted.life["sea"][len(corrupted.life["sea"])-1].Artifact.SHA256 = strings.Repeat("0", 64)
	nothing := &world{life: map[string][]gang.Status{"sea": life("sea", gang.Succeeded)}}
	nothing.life["sea"][len(nothing.life["sea"])-1].Artifact = nil
	dir := t.TempDir()
	for name, c := range map[string]struct {
		world *world
		s     session
	}{
		"submit":         {good, session{args: []string{"submit", "-"}, stdin: seaHCL}},
		"submit-live":    {good, session{args: []string{"submit", "-"}, stdin: seaHCL, live: true}},
		"submit-json":    {good, session{args: []string{"submit", "-json", "-"}, stdin: seaHCL}},
		"submit-detach":  {good, session{args: []string{"submit", "-detach", "-"}, stdin: seaHCL + strings.Replace(seaHCL, "sea", "lake", 1)}},
		"submit-failed":  {&world{life: map[string][]gang.Status{"sea": life("sea", gang.Failed)}}, session{args: []string{"submit", "-"}, stdin: seaHCL}},
		"submit-refused": {&world{refuse: gang.Refuse("a submission has 1 to 50 gangs, this one has 51")}, session{args: []string{"submit", "-"}, stdin: seaHCL}},
		"submit-located": {&world{refuse: gang.NameRefused("lake", gang.RefuseField("template", "Nomad has no job %q", "ddim"))},
			session{args: []string{"submit", "-"}, stdin: seaHCL + strings.Replace(seaHCL, "sea", "lake", 1)}},
		"submit-unreadable": {good, session{args: []string{"submit", "testdata/wrong.hcl"}}},
		"submit-no-file":    {good, session{args: []string{"submit", "testdata/none.hcl"}}},
		"submit-corrupted":  {corrupted, session{args: []string{"submit", "-o", filepath.Join(dir, "corrupted.mp4"), "-"}, stdin: seaHCL}},
		"submit-o":          {good, session{args: []string{"submit", "-", "-o", filepath.Join(dir, "sea.mp4")}, stdin: seaHCL}},
		"submit-nothing-o":  {nothing, session{args: []string{"submit", "-o", filepath.Join(dir, "nothing.mp4"), "-"}, stdin: seaHCL}},
		"submit-two-o":      {good, session{args: []string{"submit", "-o", "v.mp4", "-"}, stdin: seaHCL + seaHCL}},
	} {
		t.Run(name, func(t *testing.T) {
			c.s.address = start(t, c.world)
			code, out, errOut := play(t.Context(), c.s)
			text := transcript(c.s, code, out, errOut)
			compare(t, name, strings.ReplaceAll(text, dir, "DIR"))
		})
	}
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(files) != 1 {
		t.Fatalf("the artifact that was good is to be kept, and nothing else: %v, %v", files, err)
	}
	if saved, err := os.ReadFile(filepath.Join(dir, "sea.mp4")); err != nil || string(saved) != "moov!" {
		t.Errorf("saved %q, %v", saved, err)
	}
}
