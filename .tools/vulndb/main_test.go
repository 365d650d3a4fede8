package main

import (
	"strings"
	"testing"
)

const configLine = `{"config":{"go_version":"go1.26.0"}}`

func TestOnlyReachedFindingsWithAMendedDependencyFail(t *testing.T) {
	tests := map[string]struct {
		findings string
		fail     int
		says     string
	}{
		"nothing found": {"", 0, "0 known vulnerabilities reached, 0 of them"},
		"required, not reached": {
			`{"finding":{"osv":"GO-1","fixed_version":"v1.1.0","trace":[{"module":"m","version":"v1.0.0"}]}}
			 {"finding":{"osv":"GO-1","fixed_version":"v1.1.0","trace":[{"module":"m","version":"v1.0.0","package":"m/p"}]}}`,
			0, "0 known vulnerabilities reached",
		},
		"reached and mended": {
			`{"osv":{"id":"GO-1","summary":"It leaks."}}
			 {"finding":{"osv":"GO-1","fixed_version":"v1.1.0","trace":[{"module":"m","version":"v1.0.0","package":"m/p","function":"F","receiver":"*T"},{"module":"us","package":"us/x","function":"Main"}]}}`,
			1, "GO-1 It leaks.\n  m/p.T.F, reached from us/x.Main\n  to be mended: go get m@v1.1.0 (now v1.0.0)",
		},
		"reached in two ways counts once": {
			`{"finding":{"osv":"GO-1","fixed_version":"v1.1.0","trace":[{"module":"m","package":"m/p","function":"F"}]}}
			 {"finding":{"osv":"GO-1","fixed_version":"v1.1.0","trace":[{"module":"m","package":"m/p","function":"G"}]}}`,
			1, "1 known vulnerabilities reached, 1 of them",
		},
		"reached, nobody has mended it": {
			`{"finding":{"osv":"GO-1","trace":[{"module":"m","package":"m/p","function":"F"}]}}`,
			0, "no version of m mends it yet",
		},
		"the standard library": {
			`{"finding":{"osv":"GO-1","fixed_version":"v1.26.9","trace":[{"module":"stdlib","package":"net/http","function":"F"}]}}`,
			0, "build with Go 1.26.9 or newer",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			found, err := read(strings.NewReader(configLine + tc.findings))
			if err != nil {
				t.Fatal(err)
			}
			var said strings.Builder
			if fail := found.write(&said); fail != tc.fail {
				t.Errorf("%d to be mended, want %d", fail, tc.fail)
			}
			if !strings.Contains(said.String(), tc.says) {
				t.Errorf("it says\n%s\nwithout\n%s", said.String(), tc.says)
			}
		})
	}
}

func TestAScanThatDidNotHappenIsAnError(t *testing.T) {
	for _, output := range []string{"", `{"finding":`} {
		if _, err := read(strings.NewReader(output)); err == nil {
			t.Errorf("output %q is accepted as a scan", output)
		}
	}
}
