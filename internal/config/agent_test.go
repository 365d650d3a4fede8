package config

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// The example shows every default, so reading it gives what an empty file
// gives, but for what has no default.
func TestExampleShowsTheDefaults(t *testing.T) {
	got, err := LoadAgent("testdata/agent.hcl")
	if err != nil {
		t.Fatal(err)
	}
	want := defaultAgent()
	newRulesReader(nil, &want.Rules, protected)
	want.Rules.Levels = want.Topology.Levels
	want.Name = "agent-1"
	want.HTTP.Advertise, want.Link.Advertise = "127.0.0.1:4750", "127.0.0.1:4751"
	want.Blob.URL = "file:///var/lib/gangd/blobs"
	if !reflect.DeepEqual(got, want) {
		t.Errorf("\n got %+v\nwant %+v", got, want)
	}
}

func TestTokensComeFromTheEnvironment(t *testing.T) {
	t.Setenv("CONSUL_HTTP_TOKEN", "consul-env")
	t.Setenv("NOMAD_TOKEN", "nomad-env")
	dir := files(t, map[string]string{"a.hcl": `
		blob { url = "mem://" }
		consul { token = "consul-file" }
		nomad { token = "" }`})
	a, err := LoadAgent(dir)
	if err != nil {
		t.Fatal(err)
	}
	if a.Consul.Token != "consul-file" || a.Nomad.Token != "nomad-env" {
		t.Errorf("tokens %q and %q", a.Consul.Token, a.Nomad.Token)
	}
}

func TestDirectoryIsReadAsOne(t *testing.T) {
	dir := files(t, map[string]string{
		"10-base.hcl": "name = \"one\"\nblob {\n url = \"file:///b\"\n}\ntier \"production\" {\n priority = 500\n}\n",
		"20-site.hcl": "consul {\n address = \"consul.example:8500/\"\n prefix = \"/site/gangd/\"\n}\n" +
			"tier \"batch\" {\n priority = 100\n}\nlink {\n address = \"[::]:4751\"\n advertise = \"10.0.0.1:4751\"\n}\n",
		"notes.txt": "not HCL at all {",
	})
	a, err := LoadAgent(dir)
	if err != nil {
		t.Fatal(err)
	}
	if a.Name != "one" || a.Consul.Address != "http://consul.example:8500" || a.Consul.Prefix != "site/gangd" || a.Link.Advertise != "10.0.0.1:4751" {
		t.Errorf("got %+v", a)
	}
	var tiers []string
	for _, t := range a.Rules.Tiers {
		tiers = append(tiers, fmt.Sprint(t.Name, " ", t.Priority))
	}
	if want := []string{"production 500", "interactive 300", "background 100", "batch 100"}; !slices.Equal(tiers, want) {
		t.Errorf("tiers %q, want %q", tiers, want)
	}
	if a.Start.ReadyTimeout != time.Minute {
		t.Errorf("ready_timeout %s", a.Start.ReadyTimeout)
	}
}

func TestFilesThatContradict(t *testing.T) {
	dir := files(t, map[string]string{
		"a.hcl": "name = \"one\"\nblob {\n url = \"file:///b\"\n}\n",
		"b.hcl": "name = \"two\"\nblob {\n url = \"file:///c\"\n}\n",
	})
	_, err := LoadAgent(dir)
	if err == nil {
		t.Fatal("no error")
	}
	for _, part := range []string{"b.hcl:1: Duplicate argument", "b.hcl:2: Duplicate blob block", filepath.Join(dir, "a.hcl") + ":2"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q is not in:\n%v", part, err)
		}
	}
}

func TestFilesThatAreNotThere(t *testing.T) {
	for _, paths := range [][]string{nil, {filepath.Join(t.TempDir(), "none.hcl")}, {t.TempDir()}} {
		if _, err := LoadAgent(paths...); !isUnreadable(err) {
			t.Errorf("%v: got %v, want an UnreadableError", paths, err)
		}
	}
}

func files(t *testing.T, content map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range content {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
