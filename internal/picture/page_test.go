package picture

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/gangd/gangd/internal/config"
	"github.com/gangd/gangd/internal/report"
	"github.com/gangd/gangd/internal/schedule"
	"github.com/gangd/gangd/internal/sim"
)

// played plays a scenario with a recorder.
func played(t *testing.T, src string, until time.Duration) (*Recorder, report.Report) {
	t.Helper()
	s, err := config.ParseScenario("scenario.hcl", []byte(src))
	if err != nil {
		t.Fatal(err)
	}
	r := NewRecorder(s)
	lives, err := sim.Run(s, schedule.New(s.Rules), sim.Options{Until: until, Brief: true, Capacity: r.Capacity}, r.Take)
	if err != nil {
		t.Fatal(err)
	}
	return r, report.New(report.Ours, s, lives, r.summary, 0)
}

const eventful = `
cluster {
  node "n" {
    count  = 4
    fanout = { leaf = 2 }
  }
}
tenant "acme" {
  weight     = 2
  guaranteed = 8
  max_gpus   = 24
}
gang "low" {
  count    = 6
  every    = "7s"
  gpus     = 8
  duration = "90s"
  tier     = "background"
}
gang "mid" {
  count    = 3
  at       = "20s"
  every    = "30s"
  gpus     = 16
  duration = "60s"
  tenant   = "acme"
}
gang "high" {
  at       = "41s"
  gpus     = 4
  duration = "30s"
  tier     = "interactive"
}
event {
  at   = "50s"
  kind = "node_down"
  node = "n-1"
}
event {
  at   = "2m"
  kind = "node_up"
  node = "n-1"
}
`

func write(t *testing.T, r *Recorder, rep report.Report, all ...report.Report) string {
	t.Helper()
	var out bytes.Buffer
	if err := r.Write(&out, "the <play>", rep, append([]report.Report{rep}, all...)); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// The page is whole, escapes what it is given, and asks for nothing from
// elsewhere.
func TestPage(t *testing.T) {
	r, rep := played(t, eventful, sim.Forever)
	other := rep
	other.Policy = "fcfs"
	page := write(t, r, rep, other)
	for _, want := range []string{
		"<h1>the &lt;play&gt;</h1>", "GPUs in use", "The queue", "How long gangs waited", "Shares and entitlements", "The cluster over time", "Lost work",
		"Policies side by side", "weight 2, 8 guaranteed, at most 24", "node lost", "half or more out of order", ">n-l1</text>", "prefers-color-scheme: dark",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	for _, bad := range []string{"NaN", "Inf", "ZgotmplZ", "http:", "https:", "src=", "<script", "%!"} {
		if strings.Contains(page, bad) {
			t.Errorf("the page has %q in it", bad)
		}
	}
	for _, class := range regexp.MustCompile(`class="(?:fill|cell|line) (\w+)"`).FindAllStringSubmatch(page, -1) {
		if strings.Count(page, "--"+class[1]+":") < 2 { // by day and by night
			t.Errorf("there is no colour for %s", class[1])
		}
	}
	d := xml.NewDecoder(strings.NewReader(page[strings.Index(page, "<main>"):strings.Index(page, "</body>")]))
	for {
		if _, err := d.Token(); err == io.EOF {
			break
		} else if err != nil {
			t.Fatalf("tags do not match: %v", err)
		}
	}
	if alone := write(t, r, rep); strings.Contains(alone, "side by side") {
		t.Error("one policy is compared with itself")
	}
}

// What is drawn is what was held: by tier, by tenant and by place.
func TestRecorderAddsUp(t *testing.T) {
	for _, until := range []time.Duration{sim.Forever, 100 * time.Second} {
		r, _ := played(t, eventful, until)
		g := r.summary.GPUSeconds
		held := float64(g.Useful + g.Lost + g.Wasted + g.Loading + g.Saving)
		total := func(levels ...*level) float64 {
			sum := 0.0
			for _, l := range levels {
				sum += r.mean(l.averages(r.at)) * r.at.Seconds()
			}
			return sum
		}
		var tiers, tenants, places, usable []*level
		for _, x := range r.tiers {
			tiers = append(tiers, x.held)
		}
		for _, x := range r.tenants {
			tenants = append(tenants, x.held)
		}
		for _, x := range r.places.rows {
			places, usable = append(places, x.held), append(usable, x.usable)
		}
		for what, pair := range map[string][2]float64{
			"tiers": {total(tiers...), held}, "tenants": {total(tenants...), held}, "places": {total(places...), held},
			"capacity": {total(r.capacity), float64(g.Capacity)}, "usable": {total(usable...), float64(g.Capacity)},
		} {
			if math.Abs(pair[0]-pair[1]) > 1e-6*pair[1] {
				t.Errorf("until %s, %s: %g GPU-seconds are drawn of %g", until, what, pair[0], pair[1])
			}
		}
		lost := 0.0
		for _, l := range r.lost {
			row := l.sofar(r.at)
			lost += row[len(row)-1]
		}
		if math.Abs(lost-float64(g.Lost)) > 1e-6 {
			t.Errorf("until %s: %g GPU-seconds are drawn as lost of %g", until, lost, g.Lost)
		}
		waits := 0.0
		for _, x := range r.tiers {
			waits += x.waiting.value
		}
		if until == sim.Forever && waits != 0 {
			t.Errorf("%g gangs wait in the end", waits)
		}
	}
}

// A page stays small, whatever it is of.
func TestPageIsBounded(t *testing.T) {
	var src strings.Builder
	src.WriteString("cluster {\n levels = [\"spine\", \"leaf\"]\n node \"n\" {\n count = 1000\n fanout = { leaf = 8, spine = 4 }\n }\n}\n")
	for i := range 200 {
		fmt.Fprintf(&src, "gang \"g%d\" {\n count = 10\n every = \"%dm\"\n gpus = %d\n duration = \"%dm\"\n tenant = \"t%d\"\n}\n", i, 7*i+1, 1<<(i%7), 30*(i%50)+1, i%40)
	}
	r, rep := played(t, src.String(), sim.Forever)
	if len(r.places.rows) > maxPlaces || len(r.tenants) > maxTenants+1 {
		t.Errorf("%d places, %d tenants", len(r.places.rows), len(r.tenants))
	}
	const most = 512 << 10
	if page := write(t, r, rep); len(page) > most {
		t.Errorf("the page has %d bytes, and may have %d", len(page), most)
	}
}

// Rows follow the topology, also where the file does not.
func TestPlaces(t *testing.T) {
	node := func(name, at string) string { return fmt.Sprintf(" node %q {\n at = { %s }\n }\n", name, at) }
	s, err := config.ParseScenario("s.hcl", []byte("cluster {\n levels = [\"spine\", \"leaf\"]\n"+
		node("a", `spine = "s0", leaf = "l"`)+node("b", `spine = "s1", leaf = "l"`)+node("c", `spine = "s0", leaf = "k"`)+node("d", `spine = "s0", leaf = "l"`)+"}\n"))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range newPlaces(s, newTimeline()).rows {
		got = append(got, p.name+" "+strings.ReplaceAll(p.domain, "\x00", "/"))
	}
	if want := "a s0/l, d s0/l, c s0/k, b s1/l"; strings.Join(got, ", ") != want {
		t.Errorf("got %q, want %s", got, want)
	}
}

// A play that has not come to its end is not drawn.
func TestNotAtItsEnd(t *testing.T) {
	r := NewRecorder(&config.Scenario{})
	if err := r.Write(io.Discard, "x", report.Report{}, nil); err == nil {
		t.Error("it is drawn")
	}
}
