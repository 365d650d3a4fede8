package picture

import (
	"math"
	"strconv"
	"time"
)

// chart is a picture over time, in the units of its viewBox.
type chart struct {
	Label          string // for those who do not see it
	Width, Height  float64
	Left, Right    float64 // edges of the plot
	Top, Bottom    float64
	Unit           string // of the upward axis
	XTicks, YTicks []tick
	Areas, Lines   []shape
	// Cells are lines as thick as a row of a map is high.
	Cells     []shape
	RowHeight float64
	// Marks divide the rows of a map.
	Marks []float64
	x, y  scale
}

// shape is a path with the class of its colour.
type shape struct{ Class, Path string }

// newChart makes the axes of a chart of a play of this length, whose values go
// up to the highest.
func newChart(label, unit string, width, height float64, end time.Duration, highest float64) *chart {
	c := &chart{Label: label, Unit: unit, Width: width, Height: height, Left: 56, Right: width - 14, Top: 22, Bottom: height - 24}
	c.x = scale{0, max(end.Seconds(), 1e-3), c.Left, c.Right}
	c.timeAxis(end)
	up := numberTicks(highest, max(int(height/50), 2))
	c.y = scale{0, up[len(up)-1], c.Bottom, c.Top}
	for _, v := range up {
		c.YTicks = append(c.YTicks, tick{At: tenth(c.y.at(v)), Label: number(v)})
	}
	return c
}

// timeAxis marks round times.
func (c *chart) timeAxis(end time.Duration) {
	const room = 80 // for a label
	c.XTicks = nil
	for _, t := range timeTicks(end, int((c.Right-c.Left)/room)) {
		k := tick{At: tenth(c.x.at(t.Seconds())), Label: span(t), Anchor: "middle"}
		if k.At+room/2-14 > c.Width { // or it is cut off
			k.Anchor = "end"
		}
		c.XTicks = append(c.XTicks, k)
	}
}

// YLabelX is where the labels of the upward axis end, XLabelY the line on which
// those of the times stand.
func (c *chart) YLabelX() float64 { return c.Left - 8 }

// XLabelY is part of the above.
func (c *chart) XLabelY() float64 { return c.Bottom + 17 }

// steps are where columns begin and end.
func (c *chart) steps(on *timeline, end time.Duration, n int) []float64 {
	out := make([]float64, n+1)
	for i := range out {
		out[i] = c.x.at(min(time.Duration(i)*on.width, end).Seconds())
	}
	return out
}

// area fills what lies between two rows of values, by column.
func (c *chart) area(class string, steps, low, high []float64) {
	p := newPath()
	p.move(steps[0], c.y.at(low[0]))
	for i, v := range high {
		p.vertical(c.y.at(v))
		p.horizontal(steps[i+1])
	}
	for i := len(low) - 1; i >= 0; i-- {
		p.vertical(c.y.at(low[i]))
		p.horizontal(steps[i])
	}
	c.Areas = append(c.Areas, shape{class, p.close()})
}

// line draws a row of values, by column.
func (c *chart) line(class string, steps, values []float64) {
	p := newPath()
	p.move(steps[0], c.y.at(values[0]))
	for i, v := range values {
		p.vertical(c.y.at(v))
		p.horizontal(steps[i+1])
	}
	c.Lines = append(c.Lines, shape{class, p.text()})
}

// stack puts rows of values on each other, first at the bottom.
func (c *chart) stack(steps []float64, classes []string, rows [][]float64) {
	low := make([]float64, len(steps)-1)
	for i, row := range rows {
		high := sum(low, row)
		c.area(classes[i], steps, low, high)
		low = high
	}
}

// path writes the d of an SVG path along the axes, to a tenth; steps that go
// nowhere, or on as before, are left out.
type path struct {
	buf  []byte
	x, y float64
	went float64 // how far to the side it was written
}

func newPath() *path { return &path{} }

func (p *path) write(command byte, v float64) {
	p.buf = append(p.buf, command)
	p.buf = strconv.AppendFloat(p.buf, v, 'f', -1, 64)
}

func tenth(v float64) float64 { return math.Round(v*10) / 10 }

func (p *path) move(x, y float64) {
	p.x, p.y = tenth(x), tenth(y)
	p.went = p.x
	p.write('M', p.x)
	p.write(' ', p.y)
}

func (p *path) horizontal(x float64) { p.x = tenth(x) }

func (p *path) vertical(y float64) {
	if y = tenth(y); y != p.y {
		p.flush()
		p.y = y
		p.write('V', y)
	}
}

func (p *path) flush() {
	if p.x != p.went {
		p.went = p.x
		p.write('H', p.x)
	}
}

func (p *path) text() string {
	p.flush()
	return string(p.buf)
}

func (p *path) close() string { return p.text() + "Z" }
