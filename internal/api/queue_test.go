package api

import (
	"slices"
	"testing"

	"github.com/gangd/gangd/internal/gang"
)

func TestWishesOfGangsThatWait(t *testing.T) {
	s := &scheduler{gangs: []gang.Status{
		{Record: gang.Record{Version: 1, ID: "sea-00000000", State: gang.Queued}},
		{Record: gang.Record{Version: 1, ID: "lake-00000000", State: gang.Running}},
	}}
	url := serve(t, s, nil).URL
	for _, c := range []struct {
		method, path, body string
		status             int
		code               string
	}{
		{"POST", "/v1/gangs/sea-00000000/hold", "", 200, ""},
		{"POST", "/v1/gangs/sea-00000000/release", "", 200, ""},
		{"POST", "/v1/gangs/lake-00000000/hold", "", 409, CodeNotWaiting},
		{"POST", "/v1/gangs/moon-00000000/hold", "", 404, CodeNotFound},
		{"POST", "/v1/gangs/moon/hold", "", 400, "invalid_parameter"},
		{"POST", "/v1/gangs/sea-00000000/reorder", `{"before":"hill-00000000"}`, 200, ""},
		{"POST", "/v1/gangs/sea-00000000/reorder", `{"to":"last"}`, 200, ""},
		{"POST", "/v1/gangs/sea-00000000/reorder", `{"to":"first"}`, 200, ""},
		{"POST", "/v1/gangs/sea-00000000/reorder", `{"to":"top"}`, 400, "invalid_parameter"},
		{"POST", "/v1/gangs/sea-00000000/reorder", `{"to":"last","before":"hill-00000000"}`, 400, "invalid_parameter"},
		{"POST", "/v1/gangs/sea-00000000/reorder", `{"before":"../x"}`, 400, "invalid_parameter"},
		{"POST", "/v1/gangs/sea-00000000/reorder", `{"after":"x"}`, 400, CodeUnreadable},
		{"POST", "/v1/gangs/sea-00000000/reorder", ``, 400, CodeUnreadable},
		{"GET", "/v1/gangs/sea-00000000/explain", "", 200, ""},
		{"GET", "/v1/gangs/moon-00000000/explain", "", 404, CodeNotFound},
		{"GET", "/v1/shares", "", 200, ""},
		{"GET", "/v1/maintenance", "", 200, ""},
		{"PUT", "/v1/maintenance/night", `{"from_ms":1,"until_ms":2,"nodes":["n"]}`, 200, ""},
		{"PUT", "/v1/maintenance/night", `{"name":"day","from_ms":1,"until_ms":2}`, 400, "invalid_parameter"},
		{"PUT", "/v1/maintenance/night", `{"from":1}`, 400, CodeUnreadable},
		{"PUT", "/v1/maintenance/night", `{"from_ms":2,"until_ms":1}`, 422, "refused"},
		{"DELETE", "/v1/maintenance/night", "", 200, ""},
		{"DELETE", "/v1/maintenance/night", "", 404, CodeNotFound},
		{"POST", "/v1/maintenance/night", "", 405, "method_not_allowed"},
	} {
		answer, body := call(t, c.method, url+c.path, "application/json", c.body)
		code := ""
		if answer.StatusCode >= 400 {
			code = detail(t, body).Code
		}
		if answer.StatusCode != c.status || code != c.code {
			t.Errorf("%s %s %s: %d %s, want %d %s", c.method, c.path, c.body, answer.StatusCode, body, c.status, c.code)
		}
	}
	if want := []string{"sea-00000000 hill-00000000 false", "sea-00000000  true", "sea-00000000  false"}; !slices.Equal(s.moved, want) {
		t.Errorf("moved %q, want %q", s.moved, want)
	}
	if s.gangs[0].Held {
		t.Error("it was released, and is held")
	}
}
