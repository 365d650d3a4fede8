// Package schema describes to Nomad what a plugin's or a task's configuration
// may contain. A [Spec] is a specification in the sense of hcldec of
// github.com/hashicorp/hcl/v2, which Nomad applies to the operator's HCL.
//
//	schema.Object(schema.Fields{
//		"image":   schema.Attr("image", schema.String, true),
//		"args":    schema.Attr("args", "list(string)", false),
//		"timeout": schema.Default(schema.Attr("timeout", schema.String, false), schema.Literal(`"30s"`)),
//	})
package schema

import "github.com/gangd/gangd/internal/nomadplugin/proto/hclspecpb"

// Spec is one specification, as it goes over the wire.
type Spec = hclspecpb.Spec

// Fields are the parts of an object by the names they get in the result.
type Fields map[string]*Spec

// Simple types for [Attr] and [BlockAttrs]. Composed ones are written as in
// HCL: "list(string)", "map(number)".
const (
	String = "string"
	Number = "number"
	Bool   = "bool"
)

// Object is a value with named parts, the usual outermost specification.
func Object(fields Fields) *Spec {
	return &Spec{Block: &hclspecpb.Spec_Object{Object: &hclspecpb.Object{Attributes: fields}}}
}

// Array is a value with parts in order.
func Array(values ...*Spec) *Spec {
	return &Spec{Block: &hclspecpb.Spec_Array{Array: &hclspecpb.Array{Values: values}}}
}

// Attr is the attribute called name, of an HCL type.
func Attr(name, hclType string, required bool) *Spec {
	return &Spec{Block: &hclspecpb.Spec_Attr{Attr: &hclspecpb.Attr{Name: name, Type: hclType, Required: required}}}
}

// Literal is a fixed value, written as an HCL expression: a string needs its quotes.
func Literal(expression string) *Spec {
	return &Spec{Block: &hclspecpb.Spec_Literal{Literal: &hclspecpb.Literal{Value: expression}}}
}

// Default is primary, or fallback where primary is absent or null.
func Default(primary, fallback *Spec) *Spec {
	return &Spec{Block: &hclspecpb.Spec_Default{Default: &hclspecpb.Default{Primary: primary, Default: fallback}}}
}

// Block is the one block called name; null without it.
func Block(name string, required bool, nested *Spec) *Spec {
	return &Spec{Block: &hclspecpb.Spec_BlockValue{
		BlockValue: &hclspecpb.Block{Name: name, Required: required, Nested: nested},
	}}
}

// BlockAttrs is the block called name with attributes of any names and of one
// HCL type, as a map.
func BlockAttrs(name, hclType string, required bool) *Spec {
	return &Spec{Block: &hclspecpb.Spec_BlockAttrs{
		BlockAttrs: &hclspecpb.BlockAttrs{Name: name, Type: hclType, Required: required},
	}}
}

// BlockList is all blocks called name, in order.
func BlockList(name string, nested *Spec) *Spec {
	return BlockListN(name, 0, 0, nested)
}

// BlockListN is BlockList with at least least and at most most blocks; a most
// of zero is no bound.
func BlockListN(name string, least, most uint64, nested *Spec) *Spec {
	return &Spec{Block: &hclspecpb.Spec_BlockList{
		BlockList: &hclspecpb.BlockList{Name: name, MinItems: least, MaxItems: most, Nested: nested},
	}}
}

// BlockSet is all blocks called name, without order and without doubles.
func BlockSet(name string, nested *Spec) *Spec {
	return &Spec{Block: &hclspecpb.Spec_BlockSet{BlockSet: &hclspecpb.BlockSet{Name: name, Nested: nested}}}
}

// BlockMap is all blocks called name as maps by their labels, outermost
// first. The names of the labels appear in diagnostics only.
func BlockMap(name string, labels []string, nested *Spec) *Spec {
	return &Spec{Block: &hclspecpb.Spec_BlockMap{
		BlockMap: &hclspecpb.BlockMap{Name: name, Labels: labels, Nested: nested},
	}}
}
