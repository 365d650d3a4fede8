package gang

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

// queued is a record as it lies in Consul for most of its life, with long but
// ordinary names.
func queued() Record {
	return Record{
		Version: SchemaVersion, ID: NewID("product-launch-teaser", [5]byte{1, 2, 3, 4, 5}), State: Queued,
		Seq: 123456789, Tenant: "studio-berlin", Tier: "production", Template: "wan-2-2-t2v-a14b",
		GPUs: 1024, PerNode: 8, Accepted: 1790000000000,
	}
}

func TestQueuedRecordIsSmall(t *testing.T) {
	const budget = 300
	if b := Encode(queued()); len(b) > budget {
		t.Errorf("a queued record has %d bytes, the budget is %d: %s", len(b), budget, b)
	}
}

// A placed gang of 8-GPU members costs about 64 bytes a member beside the IDs
// of its node and lane.
func TestPlacedRecordGrowsByTheMember(t *testing.T) {
	const budget, nodeID, laneID = 64, 36, 16
	r := queued()
	r.Attempt, r.State, r.Fence = 1, Launching, Fence{1, 123456}
	size := func(members int) int {
		r.Members = nil
		for i := range members {
			r.Members = append(r.Members, Member{
				Node: fmt.Sprintf("%08d-aaaa-bbbb-cccc-0123456789ab", i), GPUs: []int{0, 1, 2, 3, 4, 5, 6, 7}, Lane: NewLaneID(r.ID, 1, i),
			})
		}
		return len(Encode(r))
	}
	if each := (size(128) - size(64)) / 64; each > budget+nodeID+laneID {
		t.Errorf("a member costs %d bytes, the budget is %d and its IDs", each, budget)
	}
	const consulLimit = 512 << 10
	if got := size(MaxGPUs); got > consulLimit {
		t.Errorf("the widest gang's record has %d bytes, Consul takes %d", got, consulLimit)
	}
}

func TestRecordsAreReadAsTheyWereWritten(t *testing.T) {
	full := queued()
	full.State, full.Attempt, full.Fence = Stopping, 3, Fence{2, 99}
	full.Members = Placement{{Node: "n-1", GPUs: []int{4, 5}, Lane: "l1"}, {Node: "n-0", GPUs: []int{4, 5}}}
	full.Avoid, full.Failures, full.RunMillis, full.Why, full.Target = []string{"n-9"}, 2, 61000, "an operator's wish", Cancelled
	full.Attempts = []Attempt{attempt(1, 2), {N: 2, Decided: 4, Ended: 5}}
	full.Times = Times{Queued: 1, Decided: 1, Dispatched: 2, Allocated: 3, Admitted: 4, Ready: 5, Started: 6, Ended: 7}
	full.Artifact = &Artifact{Key: "a/b.mp4", SHA256: "ff", Bytes: 12, ContentType: "video/mp4"}
	full.Thumbnail = &Artifact{Key: "a/b.png", SHA256: "ee", Bytes: 3}
	for _, r := range []Record{queued(), full} {
		got, err := DecodeRecord(RecordKey(r.ID), Encode(r))
		if err != nil || !reflect.DeepEqual(*got, r) {
			t.Errorf("read %+v, %v\nwrote %+v", got, err, r)
		}
	}
	lane := Lane{
		Version: SchemaVersion, ID: "l1", State: LaneBusy, Node: "n-1", GPUs: []int{4, 5}, UUIDs: []string{"GPU-a", "GPU-b"},
		Template: "ddim", TemplateVersion: 12, Gang: full.ID, Attempt: 3, Member: 1, Fence: full.Fence, Job: "j", Allocation: "x", Why: "y",
	}
	got, err := DecodeLane(LaneKey(lane.Node, lane.ID), Encode(lane))
	if err != nil || !reflect.DeepEqual(*got, lane) {
		t.Errorf("read %+v, %v\nwrote %+v", got, err, lane)
	}
	spec := validSpec()
	spec.Version, spec.Params = SchemaVersion, []byte(`{"prompt":"a <blue> sea"}`)
	gotSpec, err := DecodeSpec(SpecKey(full.ID), Encode(spec))
	if err != nil || !bytes.Contains(gotSpec.Params, []byte("prompt")) {
		t.Errorf("read %+v, %v\nwrote %+v", gotSpec, err, spec)
	}
}

func TestUnreadableRecordsAreRefused(t *testing.T) {
	readers := map[string]func(key string, value []byte) error{
		"record": func(k string, v []byte) error { _, err := DecodeRecord(k, v); return err },
		"lane":   func(k string, v []byte) error { _, err := DecodeLane(k, v); return err },
		"spec":   func(k string, v []byte) error { _, err := DecodeSpec(k, v); return err },
	}
	for kind, read := range readers {
		for _, c := range []struct{ name, value, words string }{
			{"of a later schema", `{"v":2,"id":"a-1"}`, "schema version is 2"},
			// A later schema may have other types: the version must be told, not
			// the first field that does not fit.
			{"of a later schema with other types", `{"v":2,"id":{"name":"a"}}`, "schema version is 2"},
			{"without a version", `{"id":"a-1"}`, "schema version is 0"},
			{"that is cut off", `{"v":1,"id":"a-`, "unexpected end"},
			{"that is empty", ``, "unexpected end"},
		} {
			err := read("some/key", []byte(c.value))
			if later := strings.Contains(c.name, "later"); errors.Is(err, ErrLaterSchema) != later {
				t.Errorf("%s %s: of a later schema: %t, want %t", kind, c.name, !later, later)
			}
			if err == nil || !strings.Contains(err.Error(), c.words) || !strings.Contains(err.Error(), "some/key") {
				t.Errorf("%s %s: %v, want an error with the key and %q", kind, c.name, err, c.words)
			}
		}
	}
}

// What can be read may mislead all the same.
func TestDamagedRecordsAreRefused(t *testing.T) {
	for _, c := range []struct{ key, value, words string }{
		{"gangs/a-1", `{"v":1,"id":"b-1","state":"queued","gpus":8}`, `of gang "b-1"`},
		{"gangs/a-1", `{"v":1,"id":"a-1","state":"asleep","gpus":8}`, `"asleep"`},
		{"gangs/a-1", `{"v":1,"id":"a-1","state":"queued"}`, "0 GPUs"},
		{"gangs/a-1", `{"v":1,"id":"a-1","state":"running","gpus":8}`, "no members"},
		{"gangs/a-1", `{"v":1,"id":"a-1","state":"stopping","gpus":8,"members":[{"gpus":[64]}]}`, "index 64"},
		{"lanes/n/l", `{"v":1,"id":"l","node":"m","state":"idle","gpus":[0]}`, `node "m"`},
		{"lanes/n/l", `{"v":1,"id":"l","node":"n","state":"","gpus":[0]}`, "no state"},
		{"lanes/n/l", `{"v":1,"id":"l","node":"n","state":"idle"}`, "no GPUs"},
		{"lanes/n/l", `{"v":1,"id":"l","node":"n","state":"idle","gpus":[-1]}`, "index -1"},
		{"lanes/n/l", `{"v":1,"id":"l","node":"n","state":"idle","gpus":[0],"member":-1}`, "member -1"},
		{"specs/a-1", `{"v":1,"template":"t"}`, "0 GPUs"},
		{"specs/a-1", `{"v":1,"gpus":8}`, `template ""`},
		{"specs/a-1", `{"v":1,"template":"t","gpus":8,"elastic":[{"gpus":4,"run_ns":1}]}`, "lacks the preferred size"},
		{"specs/a-1", `{"v":1,"template":"t","gpus":8,"estimate_ns":-1}`, "negative"},
	} {
		var err error
		switch kind, _, _ := strings.Cut(c.key, "/"); kind {
		case "gangs":
			_, err = DecodeRecord(c.key, []byte(c.value))
		case "lanes":
			_, err = DecodeLane(c.key, []byte(c.value))
		default:
			_, err = DecodeSpec(c.key, []byte(c.value))
		}
		if err == nil || !strings.Contains(err.Error(), c.words) || !strings.Contains(err.Error(), c.key) || errors.Is(err, ErrLaterSchema) {
			t.Errorf("%s: %v, want an error with the key and %q", c.value, err, c.words)
		}
	}
}

// Lanes of an older gangd must be found again by a newer one: the IDs are part
// of what is durable.
func TestLaneIDsAreStable(t *testing.T) {
	for _, c := range []struct {
		gang            ID
		attempt, member int
		want            LaneID
	}{
		{"sea-k3v9qd2m", 1, 0, "hbtun0nags7bfj7d"},
		{"sea-k3v9qd2m", 1, 1, "9666q9gk5b43ma9s"},
		{"sea-k3v9qd2m", 2, 0, "0cld9c6gfqa213ol"},
	} {
		if got := NewLaneID(c.gang, c.attempt, c.member); got != c.want {
			t.Errorf("lane of %s, attempt %d, member %d = %s, want %s", c.gang, c.attempt, c.member, got, c.want)
		}
	}
}

func TestLaneIDsDiffer(t *testing.T) {
	seen := make(map[LaneID]string)
	for _, id := range []ID{"a-1", "a-11", "b-1"} {
		for attempt := range 20 {
			for member := range 20 {
				who := fmt.Sprint(id, attempt, member)
				lane := NewLaneID(id, attempt, member)
				if other, taken := seen[lane]; taken {
					t.Fatalf("%s and %s have the lane %s", who, other, lane)
				}
				seen[lane] = who
			}
		}
	}
}

func TestParseID(t *testing.T) {
	long := strings.Repeat("n", MaxNameLen)
	for _, name := range []string{"a", "sea", "a-b-0", long} {
		id := NewID(name, [5]byte{0xff, 1, 2, 3, 4})
		if got, err := ParseID(string(id)); got != id || err != nil {
			t.Errorf("%s is read as %q, %v", id, got, err)
		}
	}
	for _, text := range []string{
		"", "sea", "-0123457v", "sea0123457v", "sea-0123457w", "sea-0123457", "sea-01234567v", "Sea-0123457v", "a--0123457v",
		"-a-0123457v", "a/b-0123457v", "sea-0123457v\n", long + "n-0123457v",
	} {
		if got, err := ParseID(text); err == nil {
			t.Errorf("%q is taken as %q", text, got)
		}
	}
}

func TestNewID(t *testing.T) {
	if got := NewID("sea", [5]byte{0, 0x44, 0x32, 0x14, 0xff}); got != "sea-0123457v" {
		t.Errorf("NewID = %s", got)
	}
	lowest, highest := NewID("a", [5]byte{}), NewID("a", [5]byte{0xff, 0xff, 0xff, 0xff, 0xff})
	if lowest != "a-00000000" || highest != "a-vvvvvvvv" {
		t.Errorf("the IDs reach from %s to %s", lowest, highest)
	}
	// An ID is a path element in Consul, a part of a Nomad job's name and of a
	// file's: it has a name's characters only.
	for _, id := range []ID{lowest, highest} {
		if !nameRule.MatchString(string(id)) {
			t.Errorf("%s has other characters than a name", id)
		}
	}
}

func TestFenceOrder(t *testing.T) {
	ordered := []Fence{{}, {0, 7}, {1, 1}, {1, 2}, {2, 0}, {2, 5}}
	for i, f := range ordered {
		for j, g := range ordered {
			if got, want := f.Before(g), i < j; got != want {
				t.Errorf("%s before %s: %t, want %t", f, g, got, want)
			}
		}
	}
}

func TestPlacementCountsGPUs(t *testing.T) {
	p := Placement{{Node: "a", GPUs: []int{0, 1}}, {Node: "b", GPUs: []int{6, 7}}}
	if got := p.GPUs(); got != 4 {
		t.Errorf("GPUs() = %d, want 4", got)
	}
}

func TestLaneJobNamesWhatAnOperatorLooksFor(t *testing.T) {
	for _, c := range []struct{ node, want string }{
		{"4d1c0de5-aaaa-bbbb-cccc-0123456789ab", "gangd.ddim.4d1c0de5.hbtun0nags7bfj7d"},
		{"n-1", "gangd.ddim.n-1.hbtun0nags7bfj7d"},
	} {
		if got := LaneJobID("ddim", c.node, "hbtun0nags7bfj7d"); got != c.want {
			t.Errorf("LaneJobID = %s, want %s", got, c.want)
		}
	}
}
