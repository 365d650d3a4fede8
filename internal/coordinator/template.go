package coordinator

import (
	"errors"
	"fmt"
	"time"

	"github.com/gangd/gangd/internal/gang"
)

// Template is what Nomad says of a template that will do.
type Template struct {
	// Version grows whenever the operator changes the template.
	Version uint64
	// Estimate is for gangs that give none of their own; 0 where it gives none.
	Estimate time.Duration
}

// ErrTemplateVersion is wrapped by errors of Nomad where a template is no
// longer to be had in the version that was ordered.
var ErrTemplateVersion = errors.New("the template was changed")

// nameTemplate notes that a gang is of a template: from then on its version is
// kept. There are as many as gangs were accepted of.
func (c *Core) nameTemplate(name string) {
	if _, named := c.templates[name]; !named {
		c.templates[name] = 0
	}
}

// seeTemplate notes the version of a template. All lanes of an attempt are
// opened from the one that is known when it begins; where none is known, each
// lane is made from what is the newest when it is opened. News of a submission
// and of Nomad's stream come on two ways, and versions only grow.
func (c *Core) seeTemplate(name string, version uint64) {
	if known, named := c.templates[name]; named {
		c.templates[name] = max(known, version)
	}
}

// templateChanged: the version of its template that a lane was to be opened
// from is gone, which is no fault of the gang nor of the node: it starts anew,
// whole, from another. The one that is gone is forgotten, lest it be tried
// again before Nomad tells of the next.
func (c *Core) templateChanged(g *entry, l *lane, fault error) {
	if c.templates[l.rec.Template] == l.rec.TemplateVersion {
		c.templates[l.rec.Template] = 0
	}
	c.stop(g, gang.Preempting, "", fmt.Sprintf("template %s was changed while its lanes were opened: %v", l.rec.Template, fault))
}
