package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTrace(t *testing.T) {
	on := []string{"trace", "-cluster", "testdata/trace-cluster.hcl", "-column", "gpus=num_gpu"}
	with := func(args ...string) []string { return append(on[:len(on):len(on)], args...) }
	text, err := os.ReadFile("testdata/trace.csv")
	if err != nil {
		t.Fatal(err)
	}
	for name, s := range map[string]session{
		"trace":            {args: with("-tier", "interactive:max-gpus=1,max-estimate=10m", "-check", "testdata/trace.csv")},
		"trace-compare":    {args: with("-compare", "-estimates", "class-median", "-checkpoint-every", "30s", "testdata/trace.csv")},
		"trace-json":       {args: with("-json", "-policy", "easy", "-"), stdin: string(text)},
		"trace-failures":   {args: with("-check", "-node-mtbf", "10m", "-gpu-mtbf", "2h", "-slow-mtbf", "1h", "-repair", "5m", "-seed", "3", "testdata/trace.csv")},
		"trace-unreadable": {args: []string{"trace", "-cluster", "testdata/trace-cluster.hcl", "testdata/wrong-trace.csv"}},
		"trace-no-file":    {args: with("testdata/none.csv")},
		"trace-no-cluster": {args: []string{"trace", "-cluster", "testdata/wrong-scenario.hcl", "testdata/trace.csv"}},
		"trace-rule":       {args: with("-tier", "gold", "testdata/trace.csv")},
		"trace-usage":      {args: []string{"trace", "testdata/trace.csv"}},
		"sim-compare":      {args: []string{"sim", "-compare", "testdata/scenario.hcl"}},
	} {
		t.Run(name, func(t *testing.T) {
			code, out, errOut := play(t.Context(), s)
			compare(t, name, transcript(session{args: s.args, address: "no agent"}, code, out, errOut))
		})
	}
}

func TestTraceOptionsThatAreWrong(t *testing.T) {
	for option, value := range map[string]string{
		"-estimates": "true", "-policy": "best", "-until": "-1s", "-gpu-mtbf": "-1h", "-repair": "-1h", "-slow-factor": "0", "-tier": "a:b", "-column": "gpus",
		"-export": "slurm", "-cluster": "",
	} {
		code, out, errOut := play(t.Context(), session{args: []string{"trace", "-cluster", "testdata/trace-cluster.hcl", option, value, "testdata/trace.csv"}})
		if code != exitUsage || out != "" || !strings.Contains(errOut, strings.TrimPrefix(option, "-")) {
			t.Errorf("%s %s: exit %d, %s%s", option, value, code, out, errOut)
		}
	}
}

func TestTraceExport(t *testing.T) {
	dir := t.TempDir()
	args := []string{"trace", "-cluster", "testdata/trace-cluster.hcl", "-column", "gpus=num_gpu", "-export", "armada", "-export-dir", dir, "testdata/trace.csv"}
	code, out, errOut := play(t.Context(), session{args: args})
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if code != exitOK || err != nil || len(files) != 3 || strings.Count(out, dir) != 3 {
		t.Errorf("exit %d, %v: %s%s", code, files, out, errOut)
	}
	args[8] = filepath.Join(dir, "none")
	if code, _, errOut := play(t.Context(), session{args: args}); code != exitRefused || !strings.Contains(errOut, args[8]) {
		t.Errorf("into a folder that is none: exit %d, %s", code, errOut)
	}
}

func TestPictures(t *testing.T) {
	dir := t.TempDir()
	for name, args := range map[string][]string{
		"sim":     {"sim", "testdata/scenario.hcl"},
		"trace":   {"trace", "-cluster", "testdata/trace-cluster.hcl", "-column", "gpus=num_gpu", "testdata/trace.csv"},
		"compare": {"sim", "-compare", "-policy", "easy", "testdata/scenario.hcl"},
	} {
		file := filepath.Join(dir, name+".html")
		code, _, errOut := play(t.Context(), session{args: append(args, "-html", file)})
		page, err := os.ReadFile(file)
		if code != exitOK || err != nil || !strings.Contains(string(page), "<svg") || strings.Contains(string(page), "side by side") != (name == "compare") {
			t.Errorf("%s: exit %d, %s, %v, %d bytes", name, code, errOut, err, len(page))
		}
		if code, _, errOut := play(t.Context(), session{args: append(args, "-html", filepath.Join(dir, "none", "x"))}); code != exitRefused || !strings.Contains(errOut, "none") {
			t.Errorf("%s into a folder that is none: exit %d, %s", name, code, errOut)
		}
	}
}

// A trace without jobs, or with none that can run, is one too.
func TestTraceOfNothing(t *testing.T) {
	for _, jobs := range []string{"", "0,64,10\n"} {
		file := filepath.Join(t.TempDir(), "page.html")
		code, out, errOut := play(t.Context(), session{
			args: []string{"trace", "-cluster", "testdata/trace-cluster.hcl", "-compare", "-html", file, "-"}, stdin: "submit_s,gpus,duration_s\n" + jobs,
		})
		if code != exitOK || errOut != "" {
			t.Errorf("%q: exit %d, %s%s", jobs, code, out, errOut)
		}
	}
}
