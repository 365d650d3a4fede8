package coordinator

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gangd/gangd/internal/gang"
)

// Template is what Nomad says of a template that will do.
type Template struct {
	// Version grows whenever the operator changes the template.
	Version uint64
	// Estimate is for gangs that give none of their own; 0 where it gives none.
	Estimate time.Duration
	// ReadyTimeout is how long the members of its gangs may take from the
	// decision until all are ready; 0 where it does not say.
	ReadyTimeout time.Duration
	// Need is what each member takes of its node beside GPUs.
	Need gang.Need
}

// fill gives a specification what its template says.
func (t Template) fill(s *gang.Spec) {
	s.Estimate = cmp.Or(s.Estimate, t.Estimate)
	s.ReadyTimeout, s.MemberNeed = t.ReadyTimeout, t.Need
}

// ErrTemplateVersion is wrapped by errors of Nomad where a template is no
// longer to be had in the version that was ordered.
var ErrTemplateVersion = errors.New("the template was changed")

// known is what the core keeps of a template.
type known struct {
	// version is 0 where it is not known.
	version uint64
	// gangs are of it, and have not ended.
	gangs int
}

// needTemplate notes that one more gang is of a template: as long as there is
// one, its version is kept. dropTemplate notes that one of them has ended.
func (c *Core) needTemplate(name string) {
	if c.templates[name] == nil {
		c.templates[name] = new(known)
	}
	c.templates[name].gangs++
}

func (c *Core) dropTemplate(name string) {
	if t := c.templates[name]; t != nil {
		if t.gangs--; t.gangs == 0 {
			delete(c.templates, name)
		}
	}
}

// seeTemplate notes the version of a template. All lanes of an attempt are
// opened from the one that is known when it begins; where none is known, each
// lane is made from what is the newest when it is opened. News of a submission
// and of Nomad's stream come on two ways, and versions only grow.
func (c *Core) seeTemplate(name string, version uint64) {
	if t := c.templates[name]; t != nil {
		t.version = max(t.version, version)
	}
}

// templateChanged: the version of its template that a lane was to be opened
// from is gone, which is no fault of the gang nor of the node: it starts anew,
// whole, from another. The one that is gone is forgotten, lest it be tried
// again before Nomad tells of the next.
func (c *Core) templateChanged(g *entry, l *lane, err error) {
	if t := c.templates[l.rec.Template]; t != nil && t.version == l.rec.TemplateVersion {
		t.version = 0
	}
	c.stop(g, gang.Preempting, "", fmt.Sprintf("template %s was changed while its lanes were opened: %v", l.rec.Template, err), nil)
}

// invalid: a node refused the config of a lane's template. One node alone may
// be the reason: its plugin is of another version, or it lacks a value that the
// template names. What two of them refuse, no third would take: the gang fails.
func (c *Core) invalid(l *lane, why string) {
	g := c.entryOf(l.laneRun())
	if g == nil {
		return
	}
	if len(g.invalidOn) < 2 && !slices.Contains(g.invalidOn, l.rec.Node) {
		g.invalidOn = append(g.invalidOn, l.rec.Node)
	}
	if len(g.invalidOn) == 2 && c.active(l.laneRun()) != nil {
		c.stop(g, gang.Stopping, gang.Failed, fmt.Sprintf("template %s: two nodes refuse its config: %s", g.rec.Template, why), l)
	}
}

// readyTimeout is how long a gang's members may take from the decision until
// all are ready.
func (c *Core) readyTimeout(g *entry) time.Duration {
	return cmp.Or(g.spec.ReadyTimeout, c.cfg.ReadyTimeout)
}

// whoseTimeout says where that is written.
func (g *entry) whoseTimeout() string {
	if g.spec.ReadyTimeout > 0 {
		return fmt.Sprintf("ready_timeout in the config of template %s", g.rec.Template)
	}
	return "start.ready_timeout of gangd's agents, or give the template a ready_timeout in its config"
}
