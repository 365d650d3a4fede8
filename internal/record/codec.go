package record

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"time"

	"github.com/gangd/gangd/internal/schedule"
)

// Format is the number of the format that is written, and read.
const Format = 1

// Head begins a file.
type Head struct {
	Format int `json:"gangd_record"`
	// Version is that of the program that wrote it.
	Version  string            `json:"version"`
	Rules    schedule.Config   `json:"rules"`
	Snapshot schedule.Snapshot `json:"snapshot"`
}

// Encode writes a head as its line.
func (h *Head) Encode() ([]byte, error) { return line(h) }

// Step is one event with what was decided. Refused says what the engine refused
// of it.
type Step struct {
	N         uint64
	At        time.Time
	Event     schedule.Event
	Decisions []schedule.Decision
	Refused   string
}

// step is how a Step is written.
type step struct {
	N         uint64            `json:"n"`
	At        time.Time         `json:"at"`
	Event     json.RawMessage   `json:"event"`
	Decisions []json.RawMessage `json:"decisions,omitempty"`
	Refused   string            `json:"refused,omitempty"`
}

// Kinds are the names of events and decisions: those of their types.
var (
	events = kindsOf(
		schedule.NodeSet{}, schedule.NodeGone{}, schedule.Submit{}, schedule.Withdraw{}, schedule.Adopt{}, schedule.Occupy{},
		schedule.Began{}, schedule.Ending{}, schedule.Hold{}, schedule.Reorder{}, schedule.Past{}, schedule.Release{},
		schedule.Saved{}, schedule.WindowSet{}, schedule.WindowGone{}, schedule.Tick{}, schedule.Together{},
	)
	decisions = kindsOf(schedule.Start{}, schedule.Stop{}, schedule.CallOff{}, schedule.Wait{}, schedule.Reserve{})
)

func kindsOf(values ...any) map[string]reflect.Type {
	out := make(map[string]reflect.Type)
	for _, v := range values {
		out[Kind(v)] = reflect.TypeOf(v)
	}
	return out
}

// Kind names an event or a decision: its type, as node_set or call_off.
func Kind(v any) string {
	var out strings.Builder
	for i, r := range reflect.TypeOf(v).Name() {
		if i > 0 && r >= 'A' && r <= 'Z' {
			out.WriteByte('_')
		}
		out.WriteRune(r)
	}
	return strings.ToLower(out.String())
}

// Encode writes a step as its line.
func (s Step) Encode() ([]byte, error) {
	out := step{N: s.N, At: s.At, Refused: s.Refused}
	var err error
	if out.Event, err = encodeEvent(s.Event); err != nil {
		return nil, err
	}
	for _, d := range s.Decisions {
		raw, err := tagged(d, d)
		if err != nil {
			return nil, err
		}
		out.Decisions = append(out.Decisions, raw)
	}
	return line(out)
}

func encodeEvent(ev schedule.Event) (json.RawMessage, error) {
	switch ev := ev.(type) {
	case schedule.Submit:
		ev.Gang.Spec = ev.Gang.Spec.WithoutParams()
		return tagged(ev, ev)
	case schedule.Adopt:
		ev.Gang.Spec = ev.Gang.Spec.WithoutParams()
		return tagged(ev, ev)
	case schedule.Together:
		return encodeAll(ev)
	default:
		return tagged(ev, ev)
	}
}

func encodeAll(all schedule.Together) (json.RawMessage, error) {
	list := make([]json.RawMessage, len(all))
	for i, one := range all {
		var err error
		if list[i], err = encodeEvent(one); err != nil {
			return nil, err
		}
	}
	return tagged(all, list)
}

// tagged is a value as the one field of an object that names its kind.
func tagged(of, as any) (json.RawMessage, error) {
	return line(map[string]any{Kind(of): as})
}

func line(v any) ([]byte, error) {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// decodeStep reads the line of a step.
func decodeStep(text []byte) (Step, error) {
	var raw step
	if err := strict(text, &raw); err != nil {
		return Step{}, err
	}
	s := Step{N: raw.N, At: raw.At, Refused: raw.Refused}
	var err error
	if s.Event, err = decodeEvent(raw.Event, 0); err != nil {
		return Step{}, err
	}
	for _, one := range raw.Decisions {
		v, _, err := untagged(one, decisions)
		if err != nil {
			return Step{}, err
		}
		d, is := v.(schedule.Decision)
		if !is {
			return Step{}, fmt.Errorf("a %T is no decision", v)
		}
		s.Decisions = append(s.Decisions, d)
	}
	return s, bounded(s.At)
}

// maxDepth bounds how deep events lie in others.
const maxDepth = 8

func decodeEvent(raw json.RawMessage, depth int) (schedule.Event, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("events lie in each other more than %d deep", maxDepth)
	}
	v, body, err := untagged(raw, events)
	if err != nil {
		return nil, err
	}
	ev, is := v.(schedule.Event)
	if !is {
		return nil, fmt.Errorf("a %T is no event", v)
	}
	if _, many := v.(schedule.Together); !many {
		return ev, checkEvent(ev)
	}
	var list []json.RawMessage
	if err := strict(body, &list); err != nil {
		return nil, err
	}
	all := make(schedule.Together, len(list))
	for i, one := range list {
		if all[i], err = decodeEvent(one, depth+1); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// checkEvent finds what the engine relies on, and no decoder ensures.
func checkEvent(ev schedule.Event) error {
	if err := bounded(ev); err != nil {
		return err
	}
	var g schedule.Gang
	switch ev := ev.(type) {
	case schedule.Submit:
		g = ev.Gang
	case schedule.Adopt:
		g = ev.Gang
	case schedule.Reorder:
		if len(ev) == 0 {
			return errors.New("a reorder of no gangs")
		}
		return nil
	default:
		return nil
	}
	if g.Spec == nil {
		return fmt.Errorf("gang %s has no specification", g.ID)
	}
	if err := g.Spec.Sound(); err != nil {
		return fmt.Errorf("gang %s: %w", g.ID, err)
	}
	return nil
}

// untagged reads an object with one field, which names the kind of its value.
// Those of a Together are left in body.
func untagged(raw json.RawMessage, kinds map[string]reflect.Type) (v any, body json.RawMessage, err error) {
	var fields map[string]json.RawMessage
	if err := strict(raw, &fields); err != nil {
		return nil, nil, err
	}
	if len(fields) != 1 {
		return nil, nil, fmt.Errorf("an object with %d fields, where one names the kind", len(fields))
	}
	for name, body := range fields {
		kind, known := kinds[name]
		if !known {
			return nil, nil, fmt.Errorf("unknown kind %q", name)
		}
		into := reflect.New(kind)
		if kind == reflect.TypeFor[schedule.Together]() {
			return schedule.Together(nil), body, nil
		}
		if err := strict(body, into.Interface()); err != nil {
			return nil, nil, fmt.Errorf("%s: %w", name, err)
		}
		return into.Elem().Interface(), body, nil
	}
	return nil, nil, nil // not reached: there is one
}

// strict reads one JSON value that has no field which is not known.
func strict(text []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(into); errors.Is(err, io.EOF) {
		return errors.New("there is nothing where a value should be")
	} else if err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("more than one value on the line")
	}
	return nil
}
