package picture

// bars is a picture of horizontal bars, in the units of its viewBox.
type bars struct {
	Label         string // for those who do not see it
	Width, Height float64
	NameX, NoteX  float64 // where names end, and notes begin
	Thick         float64
	Rows          []bar
}

// bar is a row: a name, parts that follow each other, and a note behind them.
type bar struct {
	Name, Note string
	Strong     bool
	Y, TextY   float64
	Parts      []part
}

// part is a piece of a bar, with its class, what is written in it, and what it
// is.
type part struct {
	Class       string
	X, W, TextX float64
	Text, Title string
}

const (
	barPitch = 24
	barThick = 16
)

// newBars makes room for so many bars between names and notes.
func newBars(label string, width, names, notes float64) *bars {
	return &bars{Label: label, Width: width, NameX: names - 10, NoteX: width - notes + 8, Thick: barThick, Height: 4}
}

// row adds a bar, whose parts are shares of the whole length. A part that has
// room for it says its percentage where that is asked for.
func (b *bars) row(name, note string, strong bool, shares []float64, classes, titles []string, say bool) {
	r := bar{Name: name, Note: note, Strong: strong, Y: b.Height, TextY: b.Height + barThick - 4}
	from := b.NameX + 10
	length := b.NoteX - 8 - from
	for i, share := range shares {
		w := tenth(share * length)
		if share > 0 && w < 1 && !say {
			w = 1 // a bar for itself is seen
		}
		if w <= 0 {
			continue
		}
		p := part{Class: classes[i], X: tenth(from), W: w, TextX: tenth(from + w/2)}
		if len(titles) > 0 {
			p.Title = titles[i] + ": " + percent(share)
		}
		if say && w >= 40 {
			p.Text = percent(share)
		}
		r.Parts = append(r.Parts, p)
		from += share * length
	}
	b.Rows = append(b.Rows, r)
	b.Height += barPitch
}
