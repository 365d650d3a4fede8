package allreduce

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
)

// A frame on the wire is its kind (1 byte), its sequence number (4 bytes) and its length (4 bytes), big-endian, and a payload.
type kind byte

const (
	kindHello  kind = 1 + iota // handshake, JSON
	kindAccept                 // rank 0's yes
	kindRefuse                 // rank 0's no, with the reason
	kindData                   // a rank's block, or rank 0's answer
	kindLost                   // the gang is broken, with the reason
	kindBye                    // this rank has all that it needs
)

const (
	headerSize = 9

	// maxPayload bounds a block: the frames of one rank, gathered at the end of a run, are the largest.
	maxPayload = 256 << 20

	// maxHello bounds the payloads that come before the peer is known.
	maxHello = 4 << 10
)

type frame struct {
	kind    kind
	number  uint32
	payload []byte
}

func writeFrame(w io.Writer, f frame) error {
	if len(f.payload) > maxPayload {
		return fmt.Errorf("a block of %d bytes is larger than %d", len(f.payload), maxPayload)
	}
	buf := make([]byte, headerSize, headerSize+len(f.payload))
	buf[0] = byte(f.kind)
	binary.BigEndian.PutUint32(buf[1:], f.number)
	binary.BigEndian.PutUint32(buf[5:], uint32(len(f.payload)))
	_, err := w.Write(append(buf, f.payload...))
	return err
}

func readFrame(r io.Reader, limit uint32) (frame, error) {
	var header [headerSize]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return frame{}, err
	}
	f := frame{kind: kind(header[0]), number: binary.BigEndian.Uint32(header[1:])}
	n := binary.BigEndian.Uint32(header[5:])
	if n > limit || f.kind < kindHello || f.kind > kindBye {
		return frame{}, fmt.Errorf("no frame of this protocol: kind %d, %d bytes", f.kind, n)
	}
	f.payload = make([]byte, n)
	_, err := io.ReadFull(r, f.payload)
	return f, err
}

// hello is what a rank says of itself.
type hello struct {
	Gang    string `json:"gang"`
	Attempt int    `json:"attempt"`
	Rank    int    `json:"rank"`
	World   int    `json:"world"`
	Model   string `json:"model"`
}

func encodeHello(h hello) ([]byte, error) { return json.Marshal(h) }

func decodeHello(f frame) (hello, error) {
	var h hello
	if f.kind != kindHello {
		return h, fmt.Errorf("the first frame is of kind %d, want a hello", f.kind)
	}
	err := json.Unmarshal(f.payload, &h)
	return h, err
}

func appendVector(out []byte, v []float64) []byte {
	for _, x := range v {
		out = binary.BigEndian.AppendUint64(out, math.Float64bits(x))
	}
	return out
}

func decodeVector(data []byte) []float64 {
	v := make([]float64, len(data)/8)
	for i := range v {
		v[i] = math.Float64frombits(binary.BigEndian.Uint64(data[8*i:]))
	}
	return v
}
