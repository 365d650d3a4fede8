package sampler

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"slices"
)

// State is all that a rank needs to go on: how many steps are complete, and its frames. Noise needs no state: it is a
// function of seed, step and frame.
type State struct {
	// Run is the fingerprint of what the trajectory depends on; a state of another run does not fit.
	Run [32]byte

	Step     int         // steps complete
	First    int         // number of the first frame held here
	Latents  [][]float32 // the frames: linear RGB plus noise
	Previous [][]float32 // D of the last complete step, for the multi-step solver; nil at step 0
}

// ErrState is wrapped by every error about a state that cannot be used.
var ErrState = errors.New("unusable sampler state")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

const (
	stateMagic   = "ddim"
	stateVersion = 1

	// Limits on what a header may claim, before memory is taken for it.
	maxFrames = 4096
	maxValues = 1 << 22 // numbers in a frame
)

// stateHeader is the fixed start of an encoded state, little-endian. Latents follow, then Previous, then a CRC-32C of all.
type stateHeader struct {
	Magic   [4]byte
	Version uint16
	History uint16 // 1: Previous follows
	Run     [32]byte
	Step    uint32
	First   uint32
	Frames  uint32
	Values  uint32 // in a frame
}

// Encode gives the state as bytes.
func (s *State) Encode() []byte {
	h := stateHeader{Version: stateVersion, Run: s.Run, Step: uint32(s.Step), First: uint32(s.First), Frames: uint32(len(s.Latents))}
	copy(h.Magic[:], stateMagic)
	if s.Previous != nil {
		h.History = 1
	}
	if len(s.Latents) > 0 {
		h.Values = uint32(len(s.Latents[0]))
	}
	size := binary.Size(h) + 4*int(h.Values)*(len(s.Latents)+len(s.Previous)) + crc32.Size
	out := make([]byte, 0, size)
	out, err := binary.Append(out, binary.LittleEndian, h)
	if err != nil {
		panic("sampler: the state header has no fixed size: " + err.Error())
	}
	for _, frames := range [][][]float32{s.Latents, s.Previous} {
		for _, frame := range frames {
			out = AppendFrame(out, frame)
		}
	}
	return binary.LittleEndian.AppendUint32(out, crc32.Checksum(out, castagnoli))
}

// DecodeState reads what Encode wrote. Its errors wrap ErrState.
func DecodeState(data []byte) (*State, error) {
	var h stateHeader
	headerSize := binary.Size(h)
	if len(data) < headerSize+crc32.Size {
		return nil, fmt.Errorf("%w: %d bytes are too few", ErrState, len(data))
	}
	body, sum := data[:len(data)-crc32.Size], binary.LittleEndian.Uint32(data[len(data)-crc32.Size:])
	if got := crc32.Checksum(body, castagnoli); got != sum {
		return nil, fmt.Errorf("%w: its CRC is %08x, want %08x", ErrState, got, sum)
	}
	if err := binary.Read(bytes.NewReader(body), binary.LittleEndian, &h); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrState, err)
	}
	if string(h.Magic[:]) != stateMagic || h.Version != stateVersion {
		return nil, fmt.Errorf("%w: %q version %d, want %q version %d", ErrState, h.Magic, h.Version, stateMagic, stateVersion)
	}
	parts := uint64(h.Frames) * (1 + uint64(h.History))
	if h.Frames > maxFrames || h.Values > maxValues || h.History > 1 || uint64(headerSize)+4*parts*uint64(h.Values) != uint64(len(body)) {
		return nil, fmt.Errorf("%w: %d frames of %d values do not fill %d bytes", ErrState, h.Frames, h.Values, len(body))
	}
	s := &State{Run: h.Run, Step: int(h.Step), First: int(h.First)}
	s.Latents, body = takeFrames(body[headerSize:], int(h.Frames), int(h.Values))
	if h.History == 1 {
		s.Previous, _ = takeFrames(body, int(h.Frames), int(h.Values))
	}
	return s, nil
}

// Assemble cuts the frames [first, first+n) out of the shards of one gang checkpoint, whatever the number of ranks that wrote
// them. Its errors wrap ErrState.
func Assemble(shards []*State, first, n int) (*State, error) {
	if len(shards) == 0 {
		return nil, fmt.Errorf("%w: no shards", ErrState)
	}
	shards = slices.SortedFunc(slices.Values(shards), func(a, b *State) int { return cmp.Compare(a.First, b.First) })
	out := &State{Run: shards[0].Run, Step: shards[0].Step, First: first}
	for _, s := range shards {
		if s.Run != out.Run || s.Step != out.Step || (s.Previous == nil) != (shards[0].Previous == nil) {
			return nil, fmt.Errorf("%w: shards of different runs or steps (%d and %d)", ErrState, out.Step, s.Step)
		}
		for i := range s.Latents {
			if s.First+i != first+len(out.Latents) || len(out.Latents) == n {
				continue
			}
			out.Latents = append(out.Latents, s.Latents[i])
			if s.Previous != nil {
				out.Previous = append(out.Previous, s.Previous[i])
			}
		}
	}
	if len(out.Latents) != n {
		return nil, fmt.Errorf("%w: the shards hold no frame %d", ErrState, first+len(out.Latents))
	}
	return out, nil
}

// AppendFrame appends a frame's numbers, little-endian.
func AppendFrame(out []byte, frame []float32) []byte {
	for _, v := range frame {
		out = binary.LittleEndian.AppendUint32(out, math.Float32bits(v))
	}
	return out
}

// DecodeFrame reads what AppendFrame wrote. Left-over bytes are not looked at.
func DecodeFrame(data []byte) []float32 {
	frame := make([]float32, len(data)/4)
	for i := range frame {
		frame[i] = math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
	}
	return frame
}

func takeFrames(data []byte, frames, values int) ([][]float32, []byte) {
	out := make([][]float32, frames)
	for f := range out {
		out[f] = DecodeFrame(data[:4*values])
		data = data[4*values:]
	}
	return out, data
}
