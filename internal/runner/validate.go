package runner

import (
	"bytes"
	"errors"
	"fmt"
)

// maxWorld bounds the ranks of a gang: four times the widest gang that is planned for (1,024 GPUs).
const maxWorld = 4096

func (o Order) validate() error {
	if err := o.Attempt.validate(); err != nil {
		return err
	}
	if o.World < 1 || o.World > maxWorld {
		return fmt.Errorf(`"world" is %d, want 1 to %d`, o.World, maxWorld)
	}
	if o.Rank < 0 || o.Rank >= o.World {
		return fmt.Errorf(`"rank" is %d, want 0 to %d`, o.Rank, o.World-1)
	}
	if len(o.Peers) != o.World {
		return fmt.Errorf(`"peers" names %d hosts for a world of %d`, len(o.Peers), o.World)
	}
	if p := bytes.TrimSpace(o.Params); len(p) > 0 && p[0] != '{' && !bytes.Equal(p, []byte("null")) {
		return errors.New(`"params" is not a JSON object`)
	}
	if o.Resume == nil {
		return nil
	}
	if o.Resume.Step < 1 {
		return fmt.Errorf(`"resume.step" is %d, want 1 or more`, o.Resume.Step)
	}
	if n := len(o.Resume.Shards); n < 1 || n > maxWorld {
		return fmt.Errorf(`"resume.shards" has %d entries, want 1 to %d`, n, maxWorld)
	}
	return nil
}

func (c CheckpointOrder) validate() error {
	if c.AtStep < 1 {
		return fmt.Errorf(`"at_step" is %d, want 1 or more`, c.AtStep)
	}
	return c.Attempt.validate()
}

func (Drain) validate() error { return nil }

// The version is not judged here: Listener.Accept refuses another one with a sentence of its own.
func (h Hello) validate() error {
	if h.Protocol < 1 {
		return fmt.Errorf(`"protocol" is %d, want %d`, h.Protocol, Protocol)
	}
	if h.LocalRank < 0 {
		return fmt.Errorf(`"local_rank" is %d, want 0 or more`, h.LocalRank)
	}
	return nil
}

func (Ready) validate() error { return nil }

func (s Stage) validate() error {
	if s.Stage == "" {
		return errors.New(`"stage" is empty`)
	}
	return s.Attempt.validate()
}

func (s Step) validate() error {
	if s.I < 1 || s.I > s.N {
		return fmt.Errorf(`"i" is %d, want 1 to "n", which is %d`, s.I, s.N)
	}
	return s.Attempt.validate()
}

func (c Checkpoint) validate() error {
	if c.I < 1 {
		return fmt.Errorf(`"i" is %d, want 1 or more`, c.I)
	}
	if c.Path == "" {
		return errors.New(`"path" is empty`)
	}
	return c.Attempt.validate()
}

func (f Failure) validate() error {
	if f.Class == "" {
		return errors.New(`"class" is empty`)
	}
	if f.Attempt == (Attempt{}) {
		return nil
	}
	return f.Attempt.validate()
}
