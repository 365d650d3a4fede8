package coordinator

import (
	"bytes"
	"testing"
	"time"

	"github.com/gangd/gangd/internal/record"
	"github.com/gangd/gangd/internal/schedule"
)

// tapeSteps is how long a recording is that a world replays.
const tapeSteps = 200

// tape records the engine of a core, and replays that: from its beginning the
// same comes out.
type tape struct {
	t    *testing.T
	core *Core
	text bytes.Buffer
	into *record.Tape
	n    int
}

func (p *tape) take(ev schedule.Event, at time.Time, decisions []schedule.Decision, refused error) {
	p.n++
	if err := p.into.Take(ev, at, decisions, refused); err != nil {
		p.t.Fatal(err)
	}
}

// begin is a new recording, from what the core's engine is now.
func (p *tape) begin(core *Core) {
	p.core, p.n = core, 0
	p.text.Reset()
	rules, state := core.Engine()
	var err error
	if p.into, err = record.NewTape(&p.text, "test", rules, state); err != nil {
		p.t.Fatal(err)
	}
}

// rewind replays what there is.
func (p *tape) rewind() {
	if p.core == nil {
		return
	}
	r, err := record.NewReader(&p.text)
	if err == nil {
		_, err = r.Replay(nil)
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

// turn replays a recording that is long enough, and begins another.
func (p *tape) turn() {
	if p.n >= tapeSteps {
		p.rewind()
		p.begin(p.core)
	}
}
