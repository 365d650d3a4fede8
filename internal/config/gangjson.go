package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/hashicorp/hcl/v2"
	hcljson "github.com/hashicorp/hcl/v2/json"

	"github.com/gangd/gangd/internal/gang"
)

// ParseGangsJSON reads one gang, as a JSON object, or several, as an array of
// objects. The words are those of the HCL; the block's label is "name".
func ParseGangsJSON(filename string, src []byte) ([]gang.Spec, error) {
	r, err := readGangsJSON(filename, src)
	if err != nil {
		return nil, err
	}
	return r.specs, r.verdict()
}

func readGangsJSON(filename string, src []byte) (*gangReader, error) {
	doc := document{filename: filename, src: src}
	r := &gangReader{sources: map[string]*hcl.File{filename: {Bytes: src}}}
	objects, d := doc.objects()
	if d != nil {
		return nil, unreadable(hcl.Diagnostics{d}, r.sources)
	}
	r.specs = make([]gang.Spec, len(objects))
	for i, o := range objects {
		r.specs[i] = newSpec()
		r.jsonGang(doc, o, &r.specs[i])
	}
	return r, nil
}

func (r *gangReader) jsonGang(doc document, o span, into *gang.Spec) {
	file, diags := hcljson.ParseWithStartPos(doc.src[o.from:o.to], doc.filename, doc.position(o.from))
	if diags.HasErrors() {
		r.diags = append(r.diags, diags...)
		return
	}
	whole := doc.at(o.from, o.from+1)
	r.gang(file.Body, into, whole, whole, attribute{name: "name", required: true, set: text(&into.Name)})
}

// document is JSON text in which offsets are turned into lines.
type document struct {
	filename string
	src      []byte
}

// span is a part of a document, in bytes.
type span struct{ from, to int }

// objects returns where the document's gangs lie.
func (d document) objects() ([]span, *hcl.Diagnostic) {
	if len(d.src) > MaxFileBytes {
		return nil, fault("", d.at(0, 1), "Too large", fmt.Sprintf("It has %d bytes, and at most %d are read.", len(d.src), MaxFileBytes))
	}
	var whole json.RawMessage
	dec := json.NewDecoder(bytes.NewReader(d.src))
	if err := dec.Decode(&whole); err != nil {
		return nil, d.syntax(err)
	}
	end := int(dec.InputOffset())
	if _, err := dec.Token(); err != io.EOF {
		return nil, fault("", d.at(end, end+1), "Invalid JSON", "Something follows after the end of the value.")
	}
	outer := span{end - len(whole), end}
	if whole[0] != '[' {
		return d.onlyObjects([]span{outer})
	}
	return d.onlyObjects(d.elements(outer))
}

// elements returns the places of an array's elements; the array is known to
// be well formed.
func (d document) elements(array span) []span {
	var spans []span
	dec := json.NewDecoder(bytes.NewReader(d.src[array.from:array.to]))
	_, _ = dec.Token()
	for dec.More() {
		var element json.RawMessage
		_ = dec.Decode(&element)
		end := array.from + int(dec.InputOffset())
		spans = append(spans, span{end - len(element), end})
	}
	return spans
}

func (d document) onlyObjects(spans []span) ([]span, *hcl.Diagnostic) {
	if len(spans) == 0 {
		return nil, fault("", d.at(0, 1), "No gang", "The array must hold at least one object.")
	}
	for _, s := range spans {
		if d.src[s.from] != '{' {
			return nil, fault("", d.at(s.from, s.to), "Not a gang", "A gang is a JSON object; several are an array of objects.")
		}
	}
	return spans, nil
}

func (d document) syntax(err error) *hcl.Diagnostic {
	at := len(d.src)
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) && syntax.Offset > 0 {
		at = int(syntax.Offset) - 1
	}
	return fault("", d.at(at, at+1), "Invalid JSON", fmt.Sprintf("It cannot be read: %v.", err))
}

func (d document) at(from, to int) hcl.Range {
	return hcl.Range{Filename: d.filename, Start: d.position(from), End: d.position(to)}
}

func (d document) position(offset int) hcl.Pos {
	offset = min(offset, len(d.src))
	before := d.src[:offset]
	return hcl.Pos{
		Line:   bytes.Count(before, []byte{'\n'}) + 1,
		Column: offset - bytes.LastIndexByte(before, '\n'),
		Byte:   offset,
	}
}
