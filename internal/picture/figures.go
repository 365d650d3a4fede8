package picture

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gangd/gangd/internal/report"
	"github.com/gangd/gangd/internal/schedule"
)

// figure is a part of the page: a title, what there is to see, pictures, and
// what their colours mean.
type figure struct {
	Title, Note string
	Legend      []key
	Panels      []panel
	Half        bool // two panels in a row
}

// panel is one picture, with a title where there are several.
type panel struct {
	Title, Note string
	Chart       *chart
	Bars        *bars
}

// key explains a colour, or a line.
type key struct {
	Class, Text string
	Line        bool
}

const (
	fullWidth = 1000
	halfWidth = 490
)

// series names the classes of the colours that tell things apart.
func series(i int) string { return fmt.Sprint("s", i%8) }

// use is who holds the GPUs.
func (r *Recorder) use() figure {
	end := r.at
	capacity := r.capacity.averages(end)
	c := newChart("GPUs held, by tier, over time", "GPUs", fullWidth, 250, end, slices.Max(capacity))
	steps := c.steps(r.on, end, len(capacity))
	f := figure{
		Title: "GPUs in use",
		Note:  "Held by gangs of each tier. The line is what was in order and could have been held: what lies between is idle.",
	}
	var rows [][]float64
	var classes []string
	for i, t := range r.tiers {
		rows, classes = append(rows, t.held.averages(end)), append(classes, series(i))
		f.Legend = append(f.Legend, key{series(i), t.name, false})
	}
	c.stack(steps, classes, rows)
	c.line("limit", steps, capacity)
	f.Legend = append(f.Legend, key{"limit", "in order", true})
	f.Panels = []panel{{Chart: c}}
	return f
}

// queue is who waits.
func (r *Recorder) queue() figure {
	end := r.at
	f := figure{Title: "The queue", Note: "Gangs that wait, by tier, those that were stopped and wait again included; and the GPUs that they want."}
	var classes []string
	for i, t := range r.tiers {
		classes = append(classes, series(i))
		f.Legend = append(f.Legend, key{series(i), t.name, false})
	}
	for _, p := range []struct {
		unit string
		of   func(*group) *level
	}{{"gangs", func(g *group) *level { return g.waiting }}, {"GPUs", func(g *group) *level { return g.wanted }}} {
		var rows [][]float64
		top := make([]float64, r.on.used(end))
		for _, t := range r.tiers {
			row := p.of(t).averages(end)
			rows, top = append(rows, row), sum(top, row)
		}
		c := newChart("What waits, in "+p.unit+", by tier, over time", p.unit, halfWidth, 190, end, slices.Max(top))
		c.stack(c.steps(r.on, end, len(top)), classes, rows)
		f.Panels = append(f.Panels, panel{Chart: c})
	}
	f.Half = true
	return f
}

// waits are the lengths of waits, by tier and by size.
func waits(rep report.Report) figure {
	f := figure{
		Title: "How long gangs waited",
		Note: "All time in the queue: before the first start, and again after a preemption or a failure. Of gangs that still wait, the time so far. " +
			"Behind the bars the number of gangs, their mean wait and its 99th percentile.",
	}
	titles := []string{"at once"}
	for i := 1; i < len(report.WaitBounds); i++ {
		titles = append(titles, "less than "+span(report.WaitBounds[i]))
	}
	titles = append(titles, "longer")
	var classes []string
	for i, t := range titles {
		class := fmt.Sprint("w", i)
		classes = append(classes, class)
		f.Legend = append(f.Legend, key{class, t, false})
	}
	b := newBars("Lengths of waits, by tier and by size", fullWidth, 150, 270)
	for n, rows := range [][]report.Row{rep.ByTier, rep.BySize} {
		if n > 0 {
			b.Height += 10
		}
		for _, row := range rows {
			if row.Gangs == 0 {
				continue
			}
			shares := make([]float64, len(row.WaitCounts))
			for i, count := range row.WaitCounts {
				shares[i] = float64(count) / float64(row.Gangs)
			}
			note := fmt.Sprintf("%s · mean %s · p99 %s", number(float64(row.Gangs)), seconds(row.Wait.Mean), seconds(row.Wait.P99))
			b.row(row.Class, note, false, shares, classes, titles, true)
		}
	}
	f.Panels = []panel{{Bars: b}}
	return f
}

// shares are what tenants hold against what they are entitled to.
func (r *Recorder) shares() figure {
	end := r.at
	f := figure{
		Title: "Shares and entitlements",
		Note: "GPUs that each tenant holds, and what it is entitled to: its weighted max-min share of the GPUs in order, over what all tenants hold and want. " +
			"What it holds above that others do not want, or cannot get back yet.",
		Legend: []key{{"held", "held", false}, {"limit", "entitled to", true}},
		Half:   true,
	}
	for i, entitled := range r.entitled() {
		t := r.tenants[i]
		held := t.held.averages(end)
		c := newChart("GPUs held by tenant "+t.name+", and what it is entitled to, over time", "GPUs", halfWidth, 150, end, max(slices.Max(held), slices.Max(entitled)))
		steps := c.steps(r.on, end, len(held))
		c.stack(steps, []string{"held"}, [][]float64{held})
		c.line("limit", steps, entitled)
		note := fmt.Sprintf("on average %s held, %s entitled; weight %s", short(r.mean(held)), short(r.mean(entitled)), number(t.tenant.Weight))
		if t.tenant.Guaranteed > 0 {
			note += fmt.Sprintf(", %d guaranteed", t.tenant.Guaranteed)
		}
		if t.tenant.MaxGPUs > 0 {
			note += fmt.Sprintf(", at most %d", t.tenant.MaxGPUs)
		}
		f.Panels = append(f.Panels, panel{Title: t.name, Note: note, Chart: c})
	}
	return f
}

// mean is that over the time of the play.
func (r *Recorder) mean(averages []float64) float64 {
	total := 0.0
	for i, v := range averages {
		total += v * r.on.seconds(i, r.at)
	}
	if r.at == 0 {
		return 0
	}
	return total / r.at.Seconds()
}

// The classes of the cells of the map, by the share that is held.
var cells = []struct {
	class, text string
	below       float64
}{
	{"m0", "idle", 0.02}, {"m1", "to 25 %", 0.25}, {"m2", "to 50 %", 0.5}, {"m3", "to 75 %", 0.75}, {"m4", "to 98 %", 0.98}, {"m5", "full", 2},
}

const outOfOrder = "mx"

// topology is the map: every row a place, every column a time.
func (r *Recorder) topology() figure {
	end, rows := r.at, r.places.rows
	high := min(max(420/float64(len(rows)), 5), 18)
	c := newChart("Share of the GPUs that are held, by place, over time", "", fullWidth, 22+24+high*float64(len(rows)), end, 1)
	c.YTicks, c.RowHeight, c.Left = nil, high, 120
	c.Bottom = c.Top + high*float64(len(rows))
	c.x.from = c.Left
	c.timeAxis(end)
	paths := make(map[string]*path)
	steps := c.steps(r.on, end, r.on.used(end))
	for i, p := range rows {
		y := c.Top + high*(float64(i)+0.5)
		r.cells(p, steps, y, paths)
	}
	f := figure{
		Title: "The cluster over time",
		Note:  fmt.Sprintf("Each row is %s, in the order of the topology; lines divide domains. The more of its GPUs are held, the more it stands out.", r.places.kind),
	}
	for _, cell := range cells {
		f.Legend = append(f.Legend, key{cell.class, cell.text, false})
		if p := paths[cell.class]; p != nil {
			c.Cells = append(c.Cells, shape{cell.class, p.text()})
		}
	}
	if p := paths[outOfOrder]; p != nil {
		c.Cells = append(c.Cells, shape{outOfOrder, p.text()})
		f.Legend = append(f.Legend, key{outOfOrder, "half or more out of order", false})
	}
	c.labelPlaces(rows, high)
	f.Panels = []panel{{Chart: c}}
	return f
}

// cells draws a row of the map: one stroke for each run of columns of one class.
func (r *Recorder) cells(p *place, steps []float64, y float64, paths map[string]*path) {
	held, usable := p.held.averages(r.at), p.usable.averages(r.at)
	class := func(i int) string {
		if usable[i] <= p.gpus/2 {
			return outOfOrder
		}
		for _, c := range cells {
			if held[i]/p.gpus < c.below {
				return c.class
			}
		}
		return cells[len(cells)-1].class
	}
	for from := 0; from < len(held); {
		to := from + 1
		for to < len(held) && class(to) == class(from) {
			to++
		}
		if paths[class(from)] == nil {
			paths[class(from)] = newPath()
		}
		stroke := paths[class(from)]
		stroke.flush()
		stroke.move(steps[from], y)
		stroke.horizontal(steps[to])
		from = to
	}
}

// labelPlaces names domains, or rows where all are in one.
func (c *chart) labelPlaces(rows []*place, high float64) {
	const apart = 13 // or names overlap
	last := c.Top - apart
	for i, p := range rows {
		name := p.name
		if rows[0].domain != rows[len(rows)-1].domain && len(rows) > 1 {
			if i > 0 && p.domain == rows[i-1].domain {
				continue
			}
			name = p.domain[strings.LastIndexByte(p.domain, '\x00')+1:]
			if i > 0 {
				c.Marks = append(c.Marks, tenth(c.Top+high*float64(i)))
			}
		}
		if y := c.Top + high*(float64(i)+0.5); y-last >= apart {
			c.YTicks = append(c.YTicks, tick{At: tenth(y), Label: name})
			last = y
		}
	}
}

// lostWork is what had to be run again, and where all GPU time went.
func (r *Recorder) lostWork() figure {
	end := r.at
	f := figure{Title: "Lost work", Note: "Run time that had to be done again, in sum until each moment, by what it was lost to.", Half: true}
	causes := slices.Sorted(maps.Keys(r.lost))
	var rows [][]float64
	var classes []string
	top := make([]float64, r.on.used(end))
	for i, cause := range causes {
		row := r.lost[cause].sofar(end)
		for i := range row {
			row[i] /= 3600
		}
		rows, classes, top = append(rows, row), append(classes, series(i+3)), sum(top, row)
		f.Legend = append(f.Legend, key{series(i + 3), causeText(cause), false})
	}
	c := newChart("GPU-hours lost so far, by cause, over time", "GPU-h", halfWidth, 190, end, slices.Max(top))
	c.stack(c.steps(r.on, end, len(top)), classes, rows)
	lost := panel{Title: "Lost so far", Chart: c}
	if len(causes) == 0 {
		lost = panel{Title: "Nothing was lost"}
	}
	f.Panels = []panel{lost, {Title: "Where the GPU time went", Bars: r.account()}}
	return f
}

func causeText(c schedule.Cause) string { return strings.ReplaceAll(string(c), "_", " ") }

// account is what GPUs were used for.
func (r *Recorder) account() *bars {
	g := r.summary.GPUSeconds
	held := g.Useful + g.Lost + g.Wasted + g.Loading + g.Saving
	b := newBars("What the GPU time went into", halfWidth, 160, 150)
	for _, row := range []struct {
		name  string
		of    float64
		class string
	}{
		{"useful", float64(g.Useful), "good"}, {"lost", float64(g.Lost), "bad"}, {"of failed gangs", float64(g.Wasted), "bad"},
		{"loading", float64(g.Loading), "grey"}, {"saving", float64(g.Saving), "grey"},
		{"idle, gangs waited", float64(g.IdleWhilePending), "grey"}, {"idle, nobody waited", float64(g.Capacity - held - g.IdleWhilePending), "grey"},
	} {
		share := max(row.of, 0) / max(float64(g.Capacity), 1e-9)
		b.row(row.name, fmt.Sprintf("%s · %s GPU-h", percent(share), short(max(row.of, 0)/3600)), false, []float64{share}, []string{row.class}, nil, false)
	}
	return b
}

// comparison holds the policies against each other, one picture a measure.
func comparison(reports []report.Report) figure {
	f := figure{Title: "Policies side by side", Note: "The same input, tiers, caps, estimates and failures. Shorter is better.", Half: true}
	for _, m := range measures(reports) {
		most := 0.0
		for _, r := range reports {
			most = max(most, m.of(r))
		}
		b := newBars(m.title+", by policy", halfWidth, 130, 110)
		for _, r := range reports {
			class := "grey"
			if r.Policy == report.Ours {
				class = "good"
			}
			b.row(r.Policy, m.text(m.of(r)), r.Policy == report.Ours, []float64{m.of(r) / max(most, 1e-9)}, []string{class}, nil, false)
		}
		f.Panels = append(f.Panels, panel{Title: m.title, Bars: b})
	}
	return f
}

type measure struct {
	title string
	of    func(report.Report) float64
	text  func(float64) string
}

func measures(reports []report.Report) []measure {
	out := []measure{
		{"Delay, mean", func(r report.Report) float64 { return r.All.Delay.Mean }, seconds},
		{"Delay, p99", func(r report.Report) float64 { return r.All.Delay.P99 }, seconds},
		{"Bounded slowdown, mean", func(r report.Report) float64 { return r.All.Slowdown.Mean }, short},
	}
	if len(reports[0].ByTier) > 1 {
		out = append(out, measure{"Wait of " + reports[0].ByTier[0].Class + ", mean", func(r report.Report) float64 { return r.ByTier[0].Wait.Mean }, seconds})
	}
	return append(out,
		measure{fmt.Sprintf("Worst wait of the widest, %d GPUs", reports[0].Widest.GPUs), func(r report.Report) float64 { return r.Widest.Wait }, seconds},
		measure{"Lost and loading, GPU-hours", func(r report.Report) float64 { return (r.All.Lost + r.All.Loading) / 3600 }, short})
}

// tile is a number that counts.
type tile struct{ Name, Value, Note string }

func (r *Recorder) tiles(rep report.Report) []tile {
	g := r.summary.GPUSeconds
	held := g.Useful + g.Lost + g.Wasted + g.Loading + g.Saving
	unfinished := "all have ended"
	if rep.All.Unfinished > 0 {
		unfinished = number(float64(rep.All.Unfinished)) + " had not ended"
	}
	return []tile{
		{"Gangs", number(float64(rep.All.Gangs)), unfinished},
		{"GPU time held", percent(rep.Utilization), "of what was in order"},
		{"Useful", percent(float64(g.Useful) / max(float64(held), 1e-9)), "of what was held"},
		{"Delay", seconds(rep.All.Delay.Mean), "mean; p99 " + seconds(rep.All.Delay.P99)},
		{"Bounded slowdown", short(rep.All.Slowdown.Mean), "mean"},
		{"Preemptions", number(float64(rep.Preemptions)), short(rep.All.Lost/3600) + " GPU-h lost in all"},
	}
}
