package sim

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	"github.com/gangd/gangd/internal/gang"
)

// WriteJSON returns what tells records as JSON, one object a line. That a stop
// was called off has no line: the gang's next one shows it.
func WriteJSON(w io.Writer) func(Record) error {
	return func(r Record) error {
		if _, silent := r.Fact.(CalledOff); silent {
			return nil
		}
		line, err := encode(r)
		if err == nil {
			_, err = w.Write(line)
		}
		if err != nil {
			return fmt.Errorf("write that %s %s: %w", r.Gang, r.Fact.Event(), err)
		}
		return nil
	}
}

// encode makes one object of what all records have and what the fact adds.
func encode(r Record) ([]byte, error) {
	head := struct {
		T     Seconds `json:"t"`
		Event string  `json:"event"`
		Gang  gang.ID `json:"gang,omitempty"`
	}{Seconds(r.At), r.Fact.Event(), r.Gang}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(head); err != nil {
		return nil, err
	}
	b.Truncate(b.Len() - len("}\n"))
	b.WriteByte(',')
	start := b.Len()
	if err := e.Encode(r.Fact); err != nil {
		return nil, err
	}
	line := b.Bytes() // {head,{fact}\n
	return append(line[:start], line[start+1:]...), nil
}
