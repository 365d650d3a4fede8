package nomadplugintest

import (
	"fmt"
	"testing"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/ext/typeexpr"
	"github.com/hashicorp/hcl/v2/hcldec"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty/msgpack"

	"github.com/gangd/gangd/internal/nomadplugin"
	"github.com/gangd/gangd/internal/nomadplugin/proto/hclspecpb"
	"github.com/gangd/gangd/internal/nomadplugin/schema"
)

// Config is what the agent sends for a block with this HCL in it; HCL that the
// schema does not allow fails the test.
func Config(t testing.TB, spec *schema.Spec, text string) nomadplugin.Config {
	t.Helper()
	config, err := ParseConfig(spec, text)
	if err != nil {
		t.Fatalf("parse configuration: %v", err)
	}
	return config
}

// ParseConfig is Config with the diagnostics that an operator would read as an error.
func ParseConfig(spec *schema.Spec, text string) (nomadplugin.Config, error) {
	decoder, err := decoderSpec(spec)
	if err != nil {
		return nil, fmt.Errorf("the schema itself is wrong: %w", err)
	}
	file, diagnostics := hclsyntax.ParseConfig([]byte(text), "config.hcl", hcl.InitialPos)
	if diagnostics.HasErrors() {
		return nil, diagnostics
	}
	value, diagnostics := hcldec.Decode(file.Body, decoder, nil)
	if diagnostics.HasErrors() {
		return nil, diagnostics
	}
	return msgpack.Marshal(value, value.Type())
}

// decoderSpec is the hcldec specification that Nomad makes of a schema.
func decoderSpec(spec *schema.Spec) (hcldec.Spec, error) {
	switch block := spec.GetBlock().(type) {
	case *hclspecpb.Spec_Object:
		object := hcldec.ObjectSpec{}
		for name, field := range block.Object.GetAttributes() {
			nested, err := decoderSpec(field)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			object[name] = nested
		}
		return object, nil
	case *hclspecpb.Spec_Array:
		tuple := hcldec.TupleSpec{}
		for i, element := range block.Array.GetValues() {
			nested, err := decoderSpec(element)
			if err != nil {
				return nil, fmt.Errorf("[%d]: %w", i, err)
			}
			tuple = append(tuple, nested)
		}
		return tuple, nil
	case *hclspecpb.Spec_Default:
		primary, err := decoderSpec(block.Default.GetPrimary())
		if err != nil {
			return nil, fmt.Errorf("primary: %w", err)
		}
		fallback, err := decoderSpec(block.Default.GetDefault())
		if err != nil {
			return nil, fmt.Errorf("default: %w", err)
		}
		return &hcldec.DefaultSpec{Primary: primary, Default: fallback}, nil
	case *hclspecpb.Spec_Attr:
		return attrSpec(block.Attr)
	case *hclspecpb.Spec_Literal:
		return literalSpec(block.Literal)
	}
	return blockSpec(spec)
}

func attrSpec(attr *hclspecpb.Attr) (hcldec.Spec, error) {
	expression, err := parseExpression(attr.GetType())
	if err != nil {
		return nil, err
	}
	attrType, diagnostics := typeexpr.TypeConstraint(expression)
	if diagnostics.HasErrors() {
		return nil, diagnostics
	}
	return &hcldec.AttrSpec{Name: attr.GetName(), Type: attrType, Required: attr.GetRequired()}, nil
}

func literalSpec(literal *hclspecpb.Literal) (hcldec.Spec, error) {
	expression, err := parseExpression(literal.GetValue())
	if err != nil {
		return nil, err
	}
	value, diagnostics := expression.Value(nil)
	if diagnostics.HasErrors() {
		return nil, diagnostics
	}
	return &hcldec.LiteralSpec{Value: value}, nil
}

func parseExpression(text string) (hcl.Expression, error) {
	expression, diagnostics := hclsyntax.ParseExpression([]byte(text), "schema", hcl.InitialPos)
	if diagnostics.HasErrors() {
		return nil, fmt.Errorf("%q: %w", text, diagnostics)
	}
	return expression, nil
}

// blockSpec converts the specifications that read blocks.
func blockSpec(spec *schema.Spec) (hcldec.Spec, error) {
	if attrs := spec.GetBlockAttrs(); attrs != nil {
		element, err := attrSpec(&hclspecpb.Attr{Type: attrs.GetType()})
		if err != nil {
			return nil, err
		}
		return &hcldec.BlockAttrsSpec{
			TypeName: attrs.GetName(), ElementType: element.(*hcldec.AttrSpec).Type, Required: attrs.GetRequired(),
		}, nil
	}
	var block interface{ GetNested() *schema.Spec }
	switch typed := spec.GetBlock().(type) {
	case *hclspecpb.Spec_BlockValue:
		block = typed.BlockValue
	case *hclspecpb.Spec_BlockList:
		block = typed.BlockList
	case *hclspecpb.Spec_BlockSet:
		block = typed.BlockSet
	case *hclspecpb.Spec_BlockMap:
		block = typed.BlockMap
	default:
		return nil, fmt.Errorf("there is no specification in %v", spec)
	}
	nested, err := decoderSpec(block.GetNested())
	if err != nil {
		return nil, err
	}
	switch typed := block.(type) {
	case *hclspecpb.Block:
		return &hcldec.BlockSpec{TypeName: typed.Name, Required: typed.Required, Nested: nested}, nil
	case *hclspecpb.BlockList:
		return &hcldec.BlockListSpec{
			TypeName: typed.Name, MinItems: int(typed.MinItems), MaxItems: int(typed.MaxItems), Nested: nested,
		}, nil
	case *hclspecpb.BlockSet:
		return &hcldec.BlockSetSpec{
			TypeName: typed.Name, MinItems: int(typed.MinItems), MaxItems: int(typed.MaxItems), Nested: nested,
		}, nil
	}
	byLabels := spec.GetBlockMap()
	return &hcldec.BlockMapSpec{TypeName: byLabels.Name, LabelNames: byLabels.Labels, Nested: nested}, nil
}
