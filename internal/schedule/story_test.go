package schedule

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gangd/gangd/internal/cluster"
	"github.com/gangd/gangd/internal/gang"
)

var update = flag.Bool("update", false, "rewrite the expected output in testdata/*.txt")

// TestStories plays each file of testdata against an engine. A file is a
// sequence of blocks: commands, a line of dashes, what they must print, and an
// empty line. Lines that begin with # are prose. After each command every index
// of the cluster is rebuilt and compared.
//
//	engine levels=spine,leaf          a new engine, by default with leaves alone; the tiers
//	                                  are interactive, production, background
//	node n-0..3 at=s0/l0 gpus=8 ..    nodes appear, or what is told of them changes:
//	                                  model=, memory= (MiB), island= (GPUs in each),
//	                                  ill=1,2, drained=true
//	submit a gpus=16 ..               per_node=, tier=, require=, prefer=, model=,
//	                                  memory=, avoid=n-0,n-1, accepted=true
//	requeue a avoid=n-0               the gang waits again, with its old Seq
//	withdraw a
//	release a                         all seats of its last attempt, or member=1
//	adopt a attempt=1 member=0 node=n-0 gpus=0,1
//	explain a, queue, free            print what is there
//	together                          the other lines of the block are one event
func TestStories(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no stories: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := newStory(t).play(string(text))
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			want := strings.Split(string(text), "\n")
			for i, line := range strings.Split(got, "\n") {
				if i >= len(want) || line != want[i] {
					t.Fatalf("%s:%d: got\n\t%s\nwant\n\t%s\nthe whole:\n%s", file, i+1, line, strings.Join(want[min(i, len(want)):min(i+1, len(want))], ""), got)
				}
			}
		})
	}
}

// story is an engine with what its commands refer to by name.
type story struct {
	t       *testing.T
	e       *Engine
	nodes   map[string]cluster.Spec
	gangs   map[gang.ID]*Gang
	members map[gang.ID]int
	seq     uint64
	out     strings.Builder
}

func newStory(t *testing.T) *story {
	s := &story{t: t}
	s.reset([]string{"leaf"})
	return s
}

func (s *story) reset(levels []string) {
	s.e = New(Config{Levels: levels, Tiers: []Tier{{Name: "background", Priority: 100}, {Name: "interactive", Priority: 300}, {Name: "production", Priority: 200}}})
	s.nodes = make(map[string]cluster.Spec)
	s.gangs = make(map[gang.ID]*Gang)
	s.members = make(map[gang.ID]int)
}

// play runs a story and returns it with what it printed this time.
func (s *story) play(text string) string {
	var block []string
	printed := false // the lines are the output of an earlier run
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case line == "----":
			s.out.WriteString("----\n")
			s.run(block)
			block, printed = nil, true
		case printed && line != "":
		case line == "" || strings.HasPrefix(line, "#"):
			printed = false
			s.out.WriteString(line + "\n")
		default:
			block = append(block, line)
			s.out.WriteString(line + "\n")
		}
	}
	if len(block) > 0 {
		s.t.Fatalf("the commands %q are not followed by ----", block)
	}
	return s.out.String()
}

func (s *story) run(block []string) {
	before := s.out.Len()
	if block[0] == "together" {
		var all Together
		for _, line := range block[1:] {
			all = append(all, s.events(parse(s.t, line))...)
		}
		s.apply(all)
	} else {
		for _, line := range block {
			s.command(parse(s.t, line))
		}
	}
	if s.out.Len() == before {
		s.out.WriteString("nothing\n")
	}
}

// command is one line: a verb, a name, and options.
type command struct {
	t          *testing.T
	verb, name string
	options    map[string]string
}

func parse(t *testing.T, line string) command {
	words := strings.Fields(line)
	c := command{t: t, verb: words[0], options: make(map[string]string)}
	for _, word := range words[1:] {
		if key, value, ok := strings.Cut(word, "="); ok {
			c.options[key] = value
		} else {
			c.name = word
		}
	}
	return c
}

func (c command) has(key string) bool { _, ok := c.options[key]; return ok }

func (c command) number(key string, otherwise int) int {
	if !c.has(key) {
		return otherwise
	}
	n, err := strconv.Atoi(c.options[key])
	if err != nil {
		c.t.Fatalf("%s %s: %s: %v", c.verb, c.name, key, err)
	}
	return n
}

func (c command) list(key string) []string {
	if c.options[key] == "" {
		return nil
	}
	return strings.Split(c.options[key], ",")
}

func (c command) numbers(key string) []int {
	var out []int
	for _, word := range c.list(key) {
		n, err := strconv.Atoi(word)
		if err != nil {
			c.t.Fatalf("%s %s: %s: %v", c.verb, c.name, key, err)
		}
		out = append(out, n)
	}
	return out
}

// names expands n-0..3.
func (c command) names() []string {
	first, last, ok := strings.Cut(c.name, "..")
	if !ok {
		return []string{c.name}
	}
	at := strings.LastIndex(first, "-") + 1
	from, err1 := strconv.Atoi(first[at:])
	to, err2 := strconv.Atoi(last)
	if err1 != nil || err2 != nil {
		c.t.Fatalf("%s: %s is no range of names", c.verb, c.name)
	}
	var out []string
	for i := from; i <= to; i++ {
		out = append(out, first[:at]+strconv.Itoa(i))
	}
	return out
}

func (s *story) command(c command) {
	switch c.verb {
	case "engine":
		levels := []string{"leaf"}
		if c.has("levels") {
			levels = c.list("levels")
		}
		s.reset(levels)
	case "explain":
		code, reason, position, waits := s.e.Explain(gang.ID(c.name))
		if !waits {
			s.printf("%s does not wait", c.name)
			return
		}
		s.printf("%s: %s, position %d: %s", c.name, code, position, reason)
	case "queue":
		s.printf("queue: %v", s.e.queue())
	case "free":
		for _, n := range s.e.Cluster().Nodes() {
			s.printf("free on %s: %v", n.ID, n.Free().Indexes())
		}
	default:
		for _, ev := range s.events(c) {
			s.apply(ev)
		}
	}
}

func (s *story) events(c command) []Event {
	id := gang.ID(c.name)
	switch c.verb {
	case "node":
		var out []Event
		for _, name := range c.names() {
			out = append(out, NodeSet{s.node(c, name)})
		}
		return out
	case "submit":
		return []Event{Submit{s.submitted(c)}}
	case "requeue":
		g := s.gangs[id]
		g.Attempt, g.Accepted, g.Avoid = g.Attempt+1, true, c.list("avoid")
		return []Event{Submit{*g}}
	case "withdraw":
		return []Event{Withdraw{id}}
	case "adopt":
		member := gang.Member{Node: c.options["node"], GPUs: c.numbers("gpus")}
		s.members[id] = max(s.members[id], c.number("member", 0)+1)
		return []Event{Occupy{Seat: Seat{id, c.number("attempt", 1), c.number("member", 0)}, Place: member}}
	case "release":
		var out []Event
		for m := range s.members[id] {
			if m == c.number("member", m) {
				out = append(out, Release{Seat{id, c.number("attempt", s.attempt(id)), m}})
			}
		}
		return []Event{Together(out)}
	}
	s.t.Fatalf("%q is no command", c.verb)
	return nil
}

func (s *story) attempt(id gang.ID) int {
	if g := s.gangs[id]; g != nil {
		return g.Attempt
	}
	return 1
}

func (s *story) node(c command, name string) cluster.Spec {
	spec, known := s.nodes[name]
	if !known {
		spec = cluster.Spec{ID: name, Name: name, Schedulable: true}
		for range s.e.Cluster().Levels() {
			spec.Domains = append(spec.Domains, "all")
		}
	}
	if c.has("at") {
		spec.Domains = strings.Split(c.options["at"], "/")
	}
	if c.has("drained") {
		spec.Schedulable = c.options["drained"] != "true"
	}
	if !known || c.has("gpus") {
		spec.GPUs = nil
		for i := range c.number("gpus", 8) {
			spec.GPUs = append(spec.GPUs, cluster.GPU{
				UUID: fmt.Sprintf("%s/%d", name, i), Index: i, Model: "H100", Healthy: true,
				MemoryMiB: c.number("memory", 81920), Island: i / c.number("island", 8),
			})
		}
	}
	spec.GPUs = slices.Clone(spec.GPUs)
	for i := range spec.GPUs {
		if c.has("model") {
			spec.GPUs[i].Model = c.options["model"]
		}
		if c.has("ill") {
			spec.GPUs[i].Healthy = !slices.Contains(c.numbers("ill"), i)
		}
	}
	s.nodes[name] = spec
	return spec
}

func (s *story) submitted(c command) Gang {
	tier := "production"
	if c.has("tier") {
		tier = c.options["tier"]
	}
	s.seq++
	g := Gang{
		ID: gang.ID(c.name), Seq: s.seq, Attempt: 1, Avoid: c.list("avoid"), Accepted: c.options["accepted"] == "true",
		Spec: &gang.Spec{
			Name: c.name, Template: "ddim", Tenant: "default", Tier: tier,
			GPUs: c.number("gpus", 0), GPUsPerNode: c.number("per_node", 0), GPU: c.options["model"], GPUMemoryMiB: c.number("memory", 0),
			Topology: gang.Topology{Require: c.options["require"], Prefer: c.options["prefer"]},
		},
	}
	s.gangs[g.ID] = &g
	return g
}

func (s *story) printf(format string, args ...any) { fmt.Fprintf(&s.out, format+"\n", args...) }

func (s *story) apply(ev Event) {
	decisions, err := s.e.Apply(ev, time.Unix(0, 0))
	if err != nil {
		s.printf("%s: %s", refusal(err), strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	for _, d := range decisions {
		s.printf("%s", describe(d))
		if start, ok := d.(Start); ok {
			s.members[start.ID] = len(start.Placement)
		}
	}
	if err := s.e.Cluster().Check(); err != nil {
		s.t.Fatalf("after %+v: %v\n%s", ev, err, s.out.String())
	}
}

func refusal(err error) string {
	var refused *gang.RefusedError
	switch {
	case errors.As(err, &refused):
		return "refused"
	case errors.Is(err, ErrUnknown):
		return "unknown"
	default:
		return "error"
	}
}

// describe prints a decision, e.g. "start a/1: n-0[0 1] n-1[0 1]".
func describe(d Decision) string {
	switch d := d.(type) {
	case Start:
		out := fmt.Sprintf("start %s/%d:", d.ID, d.Attempt)
		for _, m := range d.Placement {
			out += fmt.Sprintf(" %s%v", m.Node, m.GPUs)
		}
		return out
	case Wait:
		return fmt.Sprintf("wait %s: %s", strings.Trim(fmt.Sprint(d.IDs), "[]"), d.Code)
	case Reserve:
		return strings.TrimSuffix(fmt.Sprintf("reserve %s: %s, moved by %s", d.ID, d.Start.UTC().Format(time.TimeOnly), d.MovedBy), ", moved by ")
	case Stop:
		return fmt.Sprintf("stop %s/%d: %s, %s, for %s", d.ID, d.Attempt, d.Cause, d.Mode, d.For)
	default:
		return fmt.Sprintf("%#v", d)
	}
}

// queue lists the gangs that wait, in the order in which they would start.
func (e *Engine) queue() []gang.ID {
	place := e.places()
	return slices.SortedFunc(maps.Keys(place), func(a, b gang.ID) int { return place[a] - place[b] })
}
