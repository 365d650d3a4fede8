package nomadplugin

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/vmihailenco/msgpack/v5"
	"github.com/vmihailenco/msgpack/v5/msgpcode"
)

const (
	maxConfigBytes = 4 << 20
	maxConfigDepth = 32
)

// Config is a configuration as Nomad sends it: MessagePack, in the shape that
// the plugin's schema gives to the operator's HCL.
type Config []byte

// Decode fills the struct that into points to. A field is found by its codec
// tag (`codec:"name"`); fields without one are not set. What is absent or null
// leaves its field as it is, so defaults can be set before. Numbers may come in
// any width, and as text where HCL's precision needs it; a [time.Duration] is
// read from text such as "1m30s". A name without a field, a value of another
// type and a number out of range are errors that name the field.
func (c Config) Decode(into any) error {
	if len(c) == 0 {
		return nil
	}
	if len(c) > maxConfigBytes {
		return fmt.Errorf("decode configuration: it has %d bytes, at most %d are read", len(c), maxConfigBytes)
	}
	source := bytes.NewReader(c)
	reader := configReader{source: source, decoder: msgpack.NewDecoder(source)}
	value, err := reader.value(0)
	if err != nil {
		return fmt.Errorf("decode configuration as MessagePack: %w", err)
	}
	if source.Len() > 0 {
		return fmt.Errorf("decode configuration as MessagePack: %d bytes follow the value", source.Len())
	}
	return assignConfig(into, value)
}

// configReader reads values off a source, which the decoder does not buffer.
type configReader struct {
	source  *bytes.Reader
	decoder *msgpack.Decoder
}

// value reads one value into nil, bool, int64, uint64, float64, string,
// []any or map[string]any. Text and binary are one: Nomad's two encoders
// disagree about which of them a string is.
func (r configReader) value(depth int) (any, error) {
	if depth > maxConfigDepth {
		return nil, fmt.Errorf("values are nested more than %d deep", maxConfigDepth)
	}
	code, err := r.decoder.PeekCode()
	if err != nil {
		return nil, noEOF(err)
	}
	switch {
	case msgpcode.IsFixedMap(code), code == msgpcode.Map16, code == msgpcode.Map32:
		return r.table(depth)
	case msgpcode.IsFixedArray(code), code == msgpcode.Array16, code == msgpcode.Array32:
		return r.list(depth)
	case msgpcode.IsString(code), msgpcode.IsBin(code):
		return r.text()
	case msgpcode.IsExt(code):
		return nil, errors.New("it contains an extension value, which a known configuration has not")
	}
	value, err := r.decoder.DecodeInterfaceLoose()
	return value, noEOF(err)
}

// text trusts no length: one that is longer than the source costs nothing.
func (r configReader) text() (any, error) {
	length, err := r.decoder.DecodeBytesLen()
	if err != nil {
		return nil, noEOF(err)
	}
	if length > r.source.Len() {
		return nil, io.ErrUnexpectedEOF
	}
	text := make([]byte, length)
	err = r.decoder.ReadFull(text)
	return string(text), noEOF(err)
}

func (r configReader) table(depth int) (any, error) {
	length, err := r.decoder.DecodeMapLen()
	if err != nil {
		return nil, noEOF(err)
	}
	values := make(map[string]any)
	for range length {
		key, err := r.value(depth + 1)
		if err != nil {
			return nil, err
		}
		name, ok := key.(string)
		if !ok {
			return nil, fmt.Errorf("a map has the key %v, where a name is expected", key)
		}
		if values[name], err = r.value(depth + 1); err != nil {
			return nil, err
		}
	}
	return values, nil
}

func (r configReader) list(depth int) (any, error) {
	length, err := r.decoder.DecodeArrayLen()
	if err != nil {
		return nil, noEOF(err)
	}
	values := []any{}
	for range length {
		value, err := r.value(depth + 1)
		if err != nil {
			return nil, err
		}
		values = append(values, value)
	}
	return values, nil
}

// noEOF tells an end inside a value from an orderly end.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
