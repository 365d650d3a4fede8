package config

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

const (
	// MaxFileBytes bounds a file, and the body of a request with gangs.
	MaxFileBytes = 1 << 20
	// maxOperators bounds the tokens that can make a parser call itself.
	maxOperators = 50_000
)

// parse reads HCL that holds plain values only.
func parse(filename string, src []byte) (*hcl.File, hcl.Diagnostics) {
	file := &hcl.File{Bytes: src, Body: hcl.EmptyBody()}
	start := hcl.InitialPos
	if len(src) > MaxFileBytes {
		return file, hcl.Diagnostics{fault("", hcl.Range{Filename: filename, Start: start, End: start}, "File too large",
			fmt.Sprintf("It has %d bytes, and at most %d are read.", len(src), MaxFileBytes))}
	}
	if d := boundNesting(filename, src); d != nil {
		return file, hcl.Diagnostics{d}
	}
	parsed, diags := hclsyntax.ParseConfig(src, filename, start)
	if diags.HasErrors() {
		if parsed != nil {
			file = parsed
		}
		return file, first(diags)
	}
	return parsed, outermost(hclsyntax.VisitAll(parsed.Body.(*hclsyntax.Body), plainValue))
}

// first keeps the fault that comes first in the text: after a string that is not
// closed, say, most of what the parser finds follows from it.
func first(diags hcl.Diagnostics) hcl.Diagnostics {
	return hcl.Diagnostics{slices.MinFunc(diags, func(a, b *hcl.Diagnostic) int { return cmp.Compare(a.Subject.Start.Byte, b.Subject.Start.Byte) })}
}

// outermost drops what lies within an expression that was refused already.
// Diagnostics come parents first.
func outermost(diags hcl.Diagnostics) hcl.Diagnostics {
	var kept hcl.Diagnostics
	for _, d := range diags {
		if len(kept) == 0 || !kept[len(kept)-1].Subject.Overlaps(*d.Subject) {
			kept = append(kept, d)
		}
	}
	return kept
}

// boundNesting refuses, before any recursive parsing, what would recurse so
// deeply that the stack of the process could not hold it.
func boundNesting(filename string, src []byte) *hcl.Diagnostic {
	tokens, _ := hclsyntax.LexConfig(src, filename, hcl.InitialPos) // a fault is told again by the parser
	depth, operators := 0, 0
	for _, t := range tokens {
		switch t.Type {
		case hclsyntax.TokenOBrace, hclsyntax.TokenOBrack, hclsyntax.TokenOParen,
			hclsyntax.TokenTemplateInterp, hclsyntax.TokenTemplateControl:
			depth++
			operators++
		case hclsyntax.TokenCBrace, hclsyntax.TokenCBrack, hclsyntax.TokenCParen, hclsyntax.TokenTemplateSeqEnd:
			depth--
		case hclsyntax.TokenIdent, hclsyntax.TokenNumberLit, hclsyntax.TokenQuotedLit, hclsyntax.TokenStringLit,
			hclsyntax.TokenOQuote, hclsyntax.TokenCQuote, hclsyntax.TokenOHeredoc, hclsyntax.TokenCHeredoc,
			hclsyntax.TokenEqual, hclsyntax.TokenComma, hclsyntax.TokenColon, hclsyntax.TokenNewline,
			hclsyntax.TokenComment, hclsyntax.TokenEOF:
		default:
			operators++
		}
		if depth > maxNesting {
			return fault("", t.Range, "Nested too deeply", fmt.Sprintf("Blocks and values may lie %d deep in one another.", maxNesting))
		}
		if operators > maxOperators {
			return fault("", t.Range, "Too many brackets and operators", fmt.Sprintf("A file may have %d.", maxOperators))
		}
	}
	return nil
}

// plainValue refuses every expression that would have to be computed.
func plainValue(node hclsyntax.Node) hcl.Diagnostics {
	refuse := func(detail string) hcl.Diagnostics {
		return hcl.Diagnostics{fault("", node.Range(), "Not a plain value", detail)}
	}
	switch n := node.(type) {
	case *hclsyntax.ScopeTraversalExpr:
		return refuse(fmt.Sprintf("Write %q if text is meant: there are no variables here.", n.Traversal.RootName()))
	case *hclsyntax.LiteralValueExpr:
		if n.Val.Type().FriendlyName() == "number" && n.Val.AsBigFloat().MantExp(nil) > 1024 {
			return refuse("The number is too large.")
		}
	case *hclsyntax.UnaryOpExpr:
		if n.Op != hclsyntax.OpNegate {
			return refuse("Write the value itself: operators are not computed here.")
		}
	case *hclsyntax.TemplateWrapExpr:
		return refuse("Nothing is put into text here: write $${ for the characters ${.")
	case *hclsyntax.TemplateExpr:
		for _, part := range n.Parts {
			if _, ok := part.(*hclsyntax.LiteralValueExpr); !ok {
				return refuse("Nothing is put into text here: write $${ for the characters ${, and %%{ for %{.")
			}
		}
	case *hclsyntax.ObjectConsExpr:
		return plainKeys(n)
	case *hclsyntax.Attribute, hclsyntax.Attributes, *hclsyntax.Block, hclsyntax.Blocks, *hclsyntax.Body,
		hclsyntax.ChildScope, *hclsyntax.TupleConsExpr, *hclsyntax.ObjectConsKeyExpr:
	default:
		return refuse("Write the value itself: nothing is computed here.")
	}
	return nil
}

// plainKeys also refuses a key that occurs twice, of which the syntax would
// silently keep the last.
func plainKeys(n *hclsyntax.ObjectConsExpr) hcl.Diagnostics {
	seen := map[string]bool{}
	for _, item := range n.Items {
		name := hcl.ExprAsKeyword(item.KeyExpr)
		if quoted, ok := unwrapKey(item.KeyExpr).(*hclsyntax.TemplateExpr); ok && quoted.IsStringLiteral() {
			value, _ := quoted.Value(nil)
			name = value.AsString()
		} else if name == "" {
			return hcl.Diagnostics{fault("", item.KeyExpr.Range(), "Not a plain value", "A key must be a word, or a string in quotes.")}
		}
		if seen[name] {
			return hcl.Diagnostics{fault("", item.KeyExpr.Range(), "Duplicate key", fmt.Sprintf("%q is set already in this object.", name))}
		}
		seen[name] = true
	}
	return nil
}

func unwrapKey(key hclsyntax.Expression) hclsyntax.Expression {
	if k, ok := key.(*hclsyntax.ObjectConsKeyExpr); ok && !k.ForceNonLiteral {
		return k.Wrapped
	}
	return key
}
