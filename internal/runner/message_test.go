package runner

import (
	"errors"
	"os"
	"reflect"
	"strings"
	"testing"
)

var seaOne = Attempt{Gang: "sea", Number: 1}

// messages holds one of each type, with every field set.
var messages = []struct {
	to Receiver
	m  Message
}{
	{ToRunner, Order{
		Attempt: seaOne, Rank: 1, World: 2, Peers: []string{"node1", "node2"},
		Env:       map[string]string{"MASTER_ADDR": "node1", "MASTER_PORT": "2950"},
		Params:    []byte(`{"prompt":"a \"red\" ball"}`),
		Resume:    &Resume{Step: 3, Shards: []Shard{{Rank: 0, Path: "/c/0", SHA256: "ab", Bytes: 7}}},
		OutputDir: "/out", CheckpointDir: "/ckpt",
	}},
	{ToRunner, CheckpointOrder{Attempt: seaOne, AtStep: 9}},
	{ToRunner, Cancel{Attempt: seaOne}},
	{ToRunner, Drain{}},
	{ToKeeper, Hello{Protocol: 1, ModelDigest: "sha256:1", LocalRank: 3, PID: 77}},
	{ToKeeper, Ready{ModelDigest: "sha256:2"}},
	{ToKeeper, Stage{Attempt: seaOne, Stage: StageDenoise}},
	{ToKeeper, Step{Attempt: seaOne, I: 2, N: 30, Millis: 12.5, CRC: 1 << 31, Finite: true}},
	{ToKeeper, Checkpoint{Attempt: seaOne, I: 2, Path: "/ckpt/2", SHA256: "cd", Bytes: 1 << 40}},
	{ToKeeper, Result{Attempt: seaOne, Path: "/out/v.mp4", Thumbnail: "/out/t.png", ContentType: "video/mp4"}},
	{ToKeeper, Failure{Attempt: seaOne, Error: Error{Class: "peer_lost", Retryable: true, Message: "rank 3\nis gone"}}},
	{ToKeeper, Failure{Error: Error{Class: ClassLoad, Message: "no weights"}}},
}

func TestMessagesSurviveTheWire(t *testing.T) {
	for _, c := range messages {
		line, err := Encode(c.m)
		if err != nil {
			t.Fatalf("%s: %v", c.m.Type(), err)
		}
		if n := strings.Count(string(line), "\n"); n != 1 || line[len(line)-1] != '\n' {
			t.Errorf("%s is not one line: %q", c.m.Type(), line)
		}
		got, err := Decode(c.to, line)
		if err != nil || !reflect.DeepEqual(got, c.m) {
			t.Errorf("%s came back as %+v, %v", line, got, err)
		}
	}
}

// The names on the wire are the contract with runners in other languages.
func TestWireForm(t *testing.T) {
	want, err := os.ReadFile("testdata/wire.txt")
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	for _, c := range messages {
		line, err := Encode(c.m)
		if err != nil {
			t.Fatal(err)
		}
		got.Write(line)
	}
	if got.String() != string(want) {
		t.Errorf("the wire form changed; testdata/wire.txt has\n%s\nencoded is\n%s", want, got.String())
	}
}

func TestDecodeRefuses(t *testing.T) {
	const run = `{"type":"run","gang":"a","attempt":1,"rank":0,"world":1,"peers":["h"]`
	for _, c := range []struct {
		to         Receiver
		line, says string
	}{
		{ToRunner, `{"type":"explode"}`, `unknown type "explode"`},
		{ToRunner, `{"type":"hello","protocol":1}`, `unknown type "hello"`}, // right type, wrong direction
		{ToKeeper, `{"type":"run"}`, `unknown type "run"`},
		{ToRunner, `{}`, `unknown type ""`},
		{ToRunner, `[]`, `cannot unmarshal`},
		{ToRunner, ``, `unexpected end`},
		{ToRunner, `{"type":"drain"} {"type":"drain"}`, `after top-level value`},
		{ToRunner, `{"type":"cancel","gang":"a"}`, `"attempt" is 0`},
		{ToRunner, `{"type":"cancel","attempt":1}`, `"gang" is empty`},
		{ToRunner, `{"type":"checkpoint","gang":"a","attempt":1}`, `"at_step" is 0`},
		{ToRunner, strings.Replace(run, `"rank":0`, `"rank":1`, 1) + `}`, `"rank" is 1, want 0 to 0`},
		{ToRunner, strings.Replace(run, `"world":1`, `"world":2`, 1) + `}`, `names 1 hosts for a world of 2`},
		{ToRunner, strings.Replace(run, `"world":1`, `"world":9999999`, 1) + `}`, `"world" is 9999999`},
		{ToRunner, run + `,"params":[1]}`, `"params" is not a JSON object`},
		{ToRunner, run + `,"resume":{"step":1}}`, `"resume.shards" has 0 entries`},
		{ToKeeper, `{"type":"step","gang":"a","attempt":1,"i":4,"n":3}`, `"i" is 4`},
		{ToKeeper, `{"type":"error","gang":"a","attempt":1}`, `"class" is empty`},
		{ToKeeper, `{"type":"stage","gang":"a","attempt":1}`, `"stage" is empty`},
		{ToKeeper, `{"type":"ready","model_digest":"` + strings.Repeat("x", MaxLine) + `"}`, `at most 1048576 are allowed`},
	} {
		m, err := Decode(c.to, []byte(c.line))
		if !errors.Is(err, ErrProtocol) || !strings.Contains(err.Error(), c.says) || m != nil {
			t.Errorf("%.80s gave %v, %v; want an error with %q", c.line, m, err, c.says)
		}
	}
}

func TestDecodeIgnoresUnknownFields(t *testing.T) {
	m, err := Decode(ToKeeper, []byte(`{"type":"ready","model_digest":"d","quantised":{"to":"fp8"}}`))
	if err != nil || m != (Ready{ModelDigest: "d"}) {
		t.Errorf("got %v, %v", m, err)
	}
}

func TestEncodeRefusesWhatDecodeWould(t *testing.T) {
	for _, m := range []Message{
		Cancel{},
		Step{Attempt: seaOne, I: 1},
		Ready{ModelDigest: strings.Repeat("x", MaxLine)},
	} {
		if line, err := Encode(m); !errors.Is(err, ErrProtocol) {
			t.Errorf("%s encoded to %.60q, %v", m.Type(), line, err)
		}
	}
}

// What decodes must encode, and decode again to the same.
func FuzzDecode(f *testing.F) {
	for _, c := range messages {
		line, err := Encode(c.m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		for _, to := range []Receiver{ToRunner, ToKeeper} {
			m, err := Decode(to, line)
			if err != nil {
				if !errors.Is(err, ErrProtocol) {
					t.Fatalf("error outside ErrProtocol: %v", err)
				}
				continue
			}
			again, err := Encode(m)
			if err != nil {
				if len(line) > MaxLine/8 { // escapes may lengthen a line beyond the limit
					continue
				}
				t.Fatalf("%q decodes to %+v, which does not encode: %v", line, m, err)
			}
			if back, err := Decode(to, again); err != nil || !sameWire(t, back, again) {
				t.Fatalf("%q: encoded again %q, decoded %+v, %v", line, again, back, err)
			}
		}
	})
}

func sameWire(t *testing.T, m Message, line []byte) bool {
	t.Helper()
	again, err := Encode(m)
	return err == nil && string(again) == string(line)
}
