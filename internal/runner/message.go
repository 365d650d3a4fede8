package runner

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

const (
	// Protocol is the version of the protocol that this package speaks.
	Protocol = 1

	// MaxLine is the longest message, in bytes, with its newline.
	MaxLine = 1 << 20
)

// ErrProtocol is wrapped by every error about what a peer sent: a line too long, no JSON object, an unknown type, a
// field out of range. A connection that gave one is of no further use.
var ErrProtocol = errors.New("runner protocol violated")

// Message is one line of the protocol.
type Message interface {
	// Type is the value of the line's "type".
	Type() string
	validate() error
}

// Receiver is the side a message is addressed to. The name "checkpoint" has another meaning on each side.
type Receiver int

const (
	ToRunner Receiver = iota // orders
	ToKeeper                 // reports
)

func (r Receiver) String() string {
	if r == ToRunner {
		return "runner"
	}
	return "keeper"
}

// Attempt names one run of one gang.
type Attempt struct {
	Gang   string `json:"gang"`
	Number int    `json:"attempt"` // from 1
}

func (a Attempt) validate() error {
	if a.Gang == "" {
		return errors.New(`"gang" is empty`)
	}
	if a.Number < 1 {
		return fmt.Errorf(`"attempt" is %d, want 1 or more`, a.Number)
	}
	return nil
}

// Order is the message run: carry out one attempt as one rank of it.
type Order struct {
	Attempt
	Rank  int      `json:"rank"`
	World int      `json:"world"`
	Peers []string `json:"peers"` // host of each rank, in rank order

	// Env holds RANK, WORLD_SIZE, GROUP_RANK, MASTER_ADDR and MASTER_PORT, as torchrun sets them.
	Env map[string]string `json:"env"`

	Params json.RawMessage `json:"params,omitempty"` // a JSON object: the gang's params
	Resume *Resume         `json:"resume"`           // nil: start from the beginning

	OutputDir     string `json:"output_dir"`     // where artifacts go
	CheckpointDir string `json:"checkpoint_dir"` // where checkpoint shards go
}

// Resume is the gang checkpoint to go on from.
type Resume struct {
	Step   int     `json:"step"` // steps that were complete
	Shards []Shard `json:"shards"`
}

// Shard is one rank's part of a gang checkpoint.
type Shard struct {
	Rank   int    `json:"rank"`
	Path   string `json:"path"`
	SHA256 string `json:"sha256"` // lower-case hex
	Bytes  int64  `json:"bytes"`
}

// CheckpointOrder is the keeper's message checkpoint: write a shard once AtStep steps are complete. All ranks are told
// the same step, which lies ahead of all of them.
type CheckpointOrder struct {
	Attempt
	AtStep int `json:"at_step"`
}

// Cancel ends an attempt as soon as possible, without waiting for the end of a step.
type Cancel struct {
	Attempt
}

// Drain lets the current run end, and then the runner.
type Drain struct{}

// Hello is the runner's first message, sent as soon as it is connected.
type Hello struct {
	Protocol    int    `json:"protocol"`
	ModelDigest string `json:"model_digest"` // empty where only loading tells it
	LocalRank   int    `json:"local_rank"`
	PID         int    `json:"pid"`
}

// Ready says that the weights are loaded. Its digest is the one that counts.
type Ready struct {
	ModelDigest string `json:"model_digest"`
}

// The stages of a run, in their order. A program may have others.
const (
	StageLoad       = "load"
	StageEncodeText = "encode_text"
	StageDenoise    = "denoise"
	StageDecode     = "decode"
	StageWrite      = "write"
)

// Stage says which part of the run begins.
type Stage struct {
	Attempt
	Stage string `json:"stage"`
}

// Step says that step I of N is complete, 1 <= I <= N.
type Step struct {
	Attempt
	I      int     `json:"i"`
	N      int     `json:"n"`
	Millis float64 `json:"ms"`     // wall time of the step
	CRC    uint32  `json:"crc"`    // of what the ranks reduced: equal on all of them
	Finite bool    `json:"finite"` // no NaN and no infinity in this rank's state
}

// Checkpoint says that this rank's shard of the state after step I lies on disk, synced.
type Checkpoint struct {
	Attempt
	I      int    `json:"i"`
	Path   string `json:"path"`
	SHA256 string `json:"sha256"` // lower-case hex
	Bytes  int64  `json:"bytes"`
}

// Result ends a run well. Only a rank that wrote an artifact gives a path.
type Result struct {
	Attempt
	Path        string `json:"path,omitempty"`
	Thumbnail   string `json:"thumbnail,omitempty"`
	ContentType string `json:"content_type,omitempty"` // of Path
}

// Failure is the message error: it ends a run, or, without a gang, the load.
type Failure struct {
	Attempt
	Error
}

func (Order) Type() string           { return "run" }
func (CheckpointOrder) Type() string { return "checkpoint" }
func (Cancel) Type() string          { return "cancel" }
func (Drain) Type() string           { return "drain" }
func (Hello) Type() string           { return "hello" }
func (Ready) Type() string           { return "ready" }
func (Stage) Type() string           { return "stage" }
func (Step) Type() string            { return "step" }
func (Checkpoint) Type() string      { return "checkpoint" }
func (Result) Type() string          { return "result" }
func (Failure) Type() string         { return "error" }

// Encode gives the message's line, newline included. It fails with ErrProtocol on a message that Decode would refuse.
func Encode(m Message) ([]byte, error) {
	if err := m.validate(); err != nil {
		return nil, fmt.Errorf("encode %s: %w: %w", m.Type(), ErrProtocol, err)
	}
	body, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w: %w", m.Type(), ErrProtocol, err)
	}
	var line bytes.Buffer
	fmt.Fprintf(&line, `{"type":%q`, m.Type())
	if len(body) > len("{}") {
		line.WriteByte(',')
	}
	line.Write(body[1:])
	line.WriteByte('\n')
	if line.Len() > MaxLine {
		return nil, fmt.Errorf("encode %s: %w: the line has %d bytes, at most %d are allowed", m.Type(), ErrProtocol, line.Len(), MaxLine)
	}
	return line.Bytes(), nil
}

// Decode reads one line addressed to the given side. The message is a value, never a pointer. Every error wraps
// ErrProtocol.
func Decode(to Receiver, line []byte) (Message, error) {
	if len(line) > MaxLine {
		return nil, fmt.Errorf("decode a message to the %s: %w: the line has %d bytes, at most %d are allowed", to, ErrProtocol, len(line), MaxLine)
	}
	var head struct {
		Type string `json:"type"`
	}
	if err := json.Unmarshal(line, &head); err != nil {
		return nil, fmt.Errorf("decode a message to the %s: %w: %w", to, ErrProtocol, err)
	}
	decode, known := decoders[to][head.Type]
	if !known {
		return nil, fmt.Errorf("decode a message to the %s: %w: unknown type %q", to, ErrProtocol, head.Type)
	}
	m, err := decode(line)
	if err != nil {
		return nil, fmt.Errorf("decode %s: %w: %w", head.Type, ErrProtocol, err)
	}
	return m, nil
}

var decoders = map[Receiver]map[string]func([]byte) (Message, error){
	ToRunner: {
		Order{}.Type():           decodeAs[Order],
		CheckpointOrder{}.Type(): decodeAs[CheckpointOrder],
		Cancel{}.Type():          decodeAs[Cancel],
		Drain{}.Type():           decodeAs[Drain],
	},
	ToKeeper: {
		Hello{}.Type():      decodeAs[Hello],
		Ready{}.Type():      decodeAs[Ready],
		Stage{}.Type():      decodeAs[Stage],
		Step{}.Type():       decodeAs[Step],
		Checkpoint{}.Type(): decodeAs[Checkpoint],
		Result{}.Type():     decodeAs[Result],
		Failure{}.Type():    decodeAs[Failure],
	},
}

func decodeAs[M Message](line []byte) (Message, error) {
	var m M
	if err := json.Unmarshal(line, &m); err != nil {
		return nil, err
	}
	return m, m.validate()
}
