package config

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/gangd/gangd/internal/gang"
)

const seaHCL = `
gang "sea" {
  template      = "ddim"
  tenant        = "acme"
  tier          = "interactive"
  gpus          = 16
  gpus_per_node = 8
  gpu           = "H100-80GB"
  gpu_memory    = "60GiB"
  estimate      = "1m30s"
  max_run       = "10m"
  infra_retries = 0
  reuse         = "tenant"
  topology {
    require = "spine"
    prefer  = "leaf"
  }
  params = {
    prompt    = "a red ball & a <blue> sea, $${literally}"
    seed      = 12345678901234567890
    scale     = 0.1
    "a.b"     = [1, null, true, { deep = -2e3 }]
  }
}
gang "lake" {
  template = "ddim"
  gpus     = 1
}
`

const seaJSON = `[
  {"name": "sea", "template": "ddim", "tenant": "acme", "tier": "interactive", "gpus": 16, "gpus_per_node": 8,
   "gpu": "H100-80GB", "gpu_memory": "60GiB", "estimate": "1m30s", "max_run": "10m", "infra_retries": 0, "reuse": "tenant",
   "topology": {"require": "spine", "prefer": "leaf"},
   "params": {"prompt": "a red ball & a <blue> sea, ${literally}", "seed": 12345678901234567890, "scale": 0.1,
              "a.b": [1, null, true, {"deep": -2000}]}},
  {"name": "lake", "template": "ddim", "gpus": 1}
]`

func TestHCLAndJSONGiveTheSameGangs(t *testing.T) {
	want := []gang.Spec{{
		Name: "sea", Template: "ddim", Tenant: "acme", Tier: "interactive", GPUs: 16, GPUsPerNode: 8, GPU: "H100-80GB",
		GPUMemoryMiB: 60 << 10, Topology: gang.Topology{Require: "spine", Prefer: "leaf"},
		Estimate: 90 * time.Second, MaxRun: 10 * time.Minute, Reuse: gang.ReuseTenant,
		Params: []byte(`{"a.b":[1,null,true,{"deep":-2000}],"prompt":"a red ball & a <blue> sea, ${literally}","scale":0.1,"seed":12345678901234567890}`),
	}, {
		Name: "lake", Template: "ddim", Tenant: "default", Tier: "production", GPUs: 1, InfraRetries: 3,
	}}
	for name, read := range map[string]func() ([]gang.Spec, error){
		"HCL":  func() ([]gang.Spec, error) { return ParseGangs("sea.hcl", []byte(seaHCL)) },
		"JSON": func() ([]gang.Spec, error) { return ParseGangsJSON("request", []byte(seaJSON)) },
	} {
		got, err := read()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\n got %+v\nwant %+v", name, got, want)
		}
	}
}

func TestSizes(t *testing.T) {
	for _, c := range []struct {
		size string
		mib  int // -1 where it is refused
	}{
		{"60GiB", 61440}, {"80GB", 76293}, {"80 GB", 76293}, {"1.5GiB", 1536}, {"512MiB", 512}, {"1TiB", 1 << 20}, {"0GiB", 0},
		{"80", -1}, {"80G", -1}, {"80gb", -1}, {"-1GiB", -1}, {"GiB", -1}, {"2TiB", -1}, {"1e3GiB", -1}, {"", -1}, {" 1GiB", -1},
	} {
		specs, err := ParseGangs("g.hcl", []byte(`gang "a" {
			template = "t"
			gpus = 1
			gpu_memory = "`+c.size+`"
		}`))
		switch {
		case err != nil && c.mib >= 0:
			t.Errorf("%q: %v", c.size, err)
		case err == nil && specs[0].GPUMemoryMiB != c.mib:
			t.Errorf("%q: got %d MiB, want %d", c.size, specs[0].GPUMemoryMiB, c.mib)
		}
	}
}

// What a stranger sends must cost no more than its size: each of these would
// otherwise take the process's stack, or gigabytes, or ages.
func TestHostileInput(t *testing.T) {
	body := func(s string) string {
		return "gang \"a\" {\n template = \"t\"\n gpus = 1\n params = {\n x = " + s + "\n }\n}\n"
	}
	deep := func(open string) string { return body(strings.Repeat(open, 100_000)) }
	hcl := map[string]string{
		"brackets":            deep("["),
		"braces":              deep("{"),
		"parentheses":         deep("("),
		"templates":           deep(`"${`),
		"minus":               deep("-"),
		"sums":                body("1" + strings.Repeat("+1", 60_000)),
		"choices":             body(strings.Repeat("true?1:", 60_000)),
		"indexes":             body("[1]" + strings.Repeat("[0]", 60_000)),
		"loops":               body("[for a in [1,2] : [for b in [1,2] : a]]"),
		"large number":        body("1e999999999"),
		"large number as key": body("{ 1e999999999 = 1 }"),
		"large number in key": body("{ (1e999999999) = 1 }"),
		"large sum":           body("1e308*1e308"),
		"call":                body(`file("/etc/passwd")`),
		"size":                strings.Repeat(" ", MaxFileBytes) + body("1"),
		"params":              body(`"` + strings.Repeat("x", gang.MaxParamsSize) + `"`),
	}
	for name, src := range hcl {
		if _, err := ParseGangs("g.hcl", []byte(src)); !isUnreadable(err) {
			t.Errorf("HCL %s: got %v, want an UnreadableError", name, err)
		}
	}
	object := func(s string) string { return `{"name": "a", "template": "t", "gpus": 1, "params": {"x": ` + s + `}}` }
	for name, src := range map[string]string{
		"arrays":       object(strings.Repeat("[", 500_000)),
		"closed":       object(strings.Repeat("[", 9_000) + strings.Repeat("]", 9_000)),
		"large number": object("1e999999999"),
		"twice":        object(`{"a": 1, "a": 2}`),
		"size":         strings.Repeat(" ", MaxFileBytes) + object("1"),
	} {
		if _, err := ParseGangsJSON("request", []byte(src)); !isUnreadable(err) {
			t.Errorf("JSON %s: got %v, want an UnreadableError", name, err)
		}
	}
}

func isUnreadable(err error) bool {
	var unreadable *UnreadableError
	return errors.As(err, &unreadable) && len(err.Error()) < 64<<10
}

func TestFieldOfTheFirstFault(t *testing.T) {
	_, err := ParseGangsJSON("request", []byte(`{"name": "a", "template": "t", "gpus": 0, "infra_retries": -1}`))
	var unreadable *UnreadableError
	if !errors.As(err, &unreadable) || unreadable.Field() != "gpus" {
		t.Fatalf("got %v", err)
	}
}

func FuzzParseGangs(f *testing.F) {
	f.Add([]byte(seaHCL))
	f.Add([]byte("gang \"a\" {\n  gpus = 0x\n"))
	f.Add([]byte("gang \"a\" {\n  params = { a = <<EOT\n${x}\nEOT\n }\n}"))
	f.Add([]byte(`gang "a" { template = "%{ if true }" }`))
	f.Fuzz(func(t *testing.T, src []byte) { checkParsed(t, src, ParseGangs) })
}

func FuzzParseGangsJSON(f *testing.F) {
	f.Add([]byte(seaJSON))
	f.Add([]byte(`{"name": "a", "topology": [{}, {}], "//": 1}`))
	f.Add([]byte(`{"name": "a", "template": "t", "gpus": 1e400}`))
	f.Fuzz(func(t *testing.T, src []byte) { checkParsed(t, src, ParseGangsJSON) })
}

// A gang that is written well and cannot be is refused, as one that is larger
// than the cluster is, with the place of what was asked for. Beside what cannot
// be read it is one more fault.
func TestWhatCannotBeIsRefused(t *testing.T) {
	for _, c := range []struct{ attributes, words string }{
		{"gpus = 12\n gpus_per_node = 8", "g.hcl:3: Invalid gpus (in gang \"a\")\n  3 |  gpus = 12\n    |         ^^\n  gpus: 12 is no multiple of gpus_per_node = 8."},
		{"gpus = 5000", "gpus: 5000 is not between 1 and 1024."},
		{"gpus = 5000\n infra_retries = -1", ""},
	} {
		_, err := ParseGangs("g.hcl", []byte("gang \"a\" {\n template = \"t\"\n "+c.attributes+"\n}\n"))
		var refused *gang.RefusedError
		if c.words == "" {
			if !isUnreadable(err) || !strings.Contains(err.Error(), "5000") {
				t.Errorf("%q: got %v, want an UnreadableError with both", c.attributes, err)
			}
		} else if !errors.As(err, &refused) || !strings.Contains(err.Error(), c.words) {
			t.Errorf("%q: got %v, want a refusal with %q", c.attributes, err, c.words)
		}
	}
}

// checkParsed holds for any input: valid gangs, or an error that can be shown.
func checkParsed(t *testing.T, src []byte, parse func(string, []byte) ([]gang.Spec, error)) {
	specs, err := parse("input", src)
	if err != nil {
		var refused *gang.RefusedError
		if !isUnreadable(err) && !errors.As(err, &refused) || err.Error() == "" {
			t.Fatalf("neither an UnreadableError that can be shown nor a refusal: %v", err)
		}
		return
	}
	if len(specs) == 0 {
		t.Fatal("no gang and no error")
	}
	for _, s := range specs {
		if err := s.Validate(); err != nil {
			t.Fatalf("invalid gang %+v: %v", s, err)
		}
	}
}
