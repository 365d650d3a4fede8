package picture

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"

	"github.com/gangd/gangd/internal/report"
)

//go:embed page.html
var source string

var pageTemplate = template.Must(template.New("page").Parse(source))

type page struct {
	Title, Subtitle string
	Tiles           []tile
	Figures         []figure
	Classes         []string // of colours
}

// classes are those of all colours, each of which the page defines.
func classes() []string {
	out := []string{"held", "limit", "good", "bad", "grey", outOfOrder}
	for i := range 8 {
		out = append(out, series(i), fmt.Sprint("w", i))
	}
	for _, c := range cells {
		out = append(out, c.class)
	}
	return out
}

// Write draws what was recorded of a play, with the report on it. Where others
// were made too, of other policies on the same input, all are compared. Each
// must be of a play that has come to its end.
func (r *Recorder) Write(out io.Writer, title string, played report.Report, all []report.Report) error {
	if r.summary == nil {
		return fmt.Errorf("draw %s: the play has not come to its end", title)
	}
	gpus := 0
	for _, n := range r.scenario.Nodes {
		gpus += len(n.GPUs)
	}
	p := page{
		Title: title,
		Subtitle: fmt.Sprintf("%s of virtual time on %s GPUs in %s nodes, under the policy %s", span(r.at), number(float64(gpus)),
			number(float64(len(r.scenario.Nodes))), played.Policy),
		Tiles: r.tiles(played), Classes: classes(),
	}
	if len(all) > 1 {
		p.Figures = append(p.Figures, comparison(all))
	}
	p.Figures = append(p.Figures, r.use(), r.queue(), waits(played), r.shares(), r.topology(), r.lostWork())
	if err := pageTemplate.Execute(out, p); err != nil {
		return fmt.Errorf("draw %s: %w", title, err)
	}
	return nil
}
