package config

import (
	"fmt"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"
)

// attribute is one attribute that a body may have, and what becomes of its
// value. An error of set says what was expected, as the end of a sentence that
// starts with the attribute's name. One that is refused is known only to say
// why, and is not told among those that are expected.
type attribute struct {
	name     string
	required bool
	refused  bool
	set      func(cty.Value) error
}

// nested is a kind of block that a body may have.
type nested struct {
	kind    string
	refused bool
	// label is what its one label means; empty where it has none. A block
	// without a label may occur once, unless there may be many.
	label string
	many  bool
	read  func(*hcl.Block)
}

// bodyReader decodes bodies and collects what is wrong with them.
type bodyReader struct{ diags hcl.Diagnostics }

// places says where the attributes of a body were read, and which of them
// were faulty or are missing.
type places struct {
	at     map[string]hcl.Range
	faulty map[string]bool
}

// add takes in what was read in a body within this one. An attribute of the
// outer body is the one that its name means.
func (p places) add(block string, inner places) {
	for name, at := range inner.at {
		if block != "" {
			p.at[block+"."+name] = at
		}
		if _, known := p.at[name]; !known {
			p.at[name] = at
		}
	}
	for name, faulty := range inner.faulty {
		p.faulty[name] = p.faulty[name] || faulty
	}
}

// read decodes one body. Attributes are set in the order in which they are
// given here, so that faults are told in the same order each time.
func (r *bodyReader) read(body hcl.Body, attributes []attribute, blocks ...nested) places {
	schema := &hcl.BodySchema{}
	for _, a := range attributes {
		schema.Attributes = append(schema.Attributes, hcl.AttributeSchema{Name: a.name, Required: a.required})
	}
	for _, n := range blocks {
		header := hcl.BlockHeaderSchema{Type: n.kind}
		if n.label != "" {
			header.LabelNames = []string{n.label}
		}
		schema.Blocks = append(schema.Blocks, header)
	}
	_, _, known := body.PartialContent(schema)
	content, diags := body.Content(schema)
	for _, unknown := range diags[len(known):] { // what Content adds to the faults of what is known
		unknown.Detail += "\n" + expected(attributes, blocks)
	}
	r.diags = append(r.diags, diags...)

	found := places{at: map[string]hcl.Range{}, faulty: map[string]bool{}}
	for _, a := range attributes {
		got, ok := content.Attributes[a.name]
		if !ok {
			found.faulty[a.name] = a.required
			continue
		}
		found.at[a.name] = got.Expr.Range()
		found.faulty[a.name] = !r.set(a, got)
	}
	for _, n := range blocks {
		r.blocks(n, content.Blocks.OfType(n.kind))
	}
	return found
}

// expected lists what a body may have.
func expected(attributes []attribute, blocks []nested) string {
	var names []string
	for _, a := range attributes {
		if !a.refused {
			names = append(names, a.name)
		}
	}
	for _, n := range blocks {
		switch {
		case n.refused:
		case n.label != "":
			names = append(names, fmt.Sprintf("%s %q { }", n.kind, strings.ToUpper(n.label)))
		default:
			names = append(names, n.kind+" { }")
		}
	}
	return "Expected here: " + strings.Join(names, ", ") + "."
}

// set reports whether the attribute's value was what it should be.
func (r *bodyReader) set(a attribute, got *hcl.Attribute) bool {
	value, diags := got.Expr.Value(nil)
	if diags.HasErrors() {
		r.diags = append(r.diags, diags...)
		return false
	}
	if err := a.set(value); err != nil {
		r.diags = append(r.diags, fault(a.name, got.Expr.Range(), "Invalid "+a.name, fmt.Sprintf("%s %v.", a.name, err)))
		return false
	}
	return true
}

func (r *bodyReader) blocks(n nested, found hcl.Blocks) {
	for i, block := range found {
		if i > 0 && n.label == "" && !n.many {
			r.diags = append(r.diags, fault(n.kind, block.DefRange, "Duplicate "+n.kind+" block",
				fmt.Sprintf("There may be one; the first is at %s:%d.", found[0].DefRange.Filename, found[0].DefRange.Start.Line)))
			continue
		}
		n.read(block)
	}
}
