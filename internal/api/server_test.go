package api

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/gangd/gangd/internal/cluster"
	"github.com/gangd/gangd/internal/config"
	"github.com/gangd/gangd/internal/gang"
)

const (
	seaHCL  = "gang \"sea\" {\n  template = \"ddim\"\n  gpus = 16\n}\n"
	seaJSON = `{"name": "sea", "template": "ddim", "gpus": 16}`
	sea     = gang.ID("sea-00000000")
)

func seaIn(state gang.State) gang.Status {
	return gang.Status{Record: gang.Record{Version: 1, ID: sea, State: state, GPUs: 16}}
}

func TestSubmit(t *testing.T) {
	for _, c := range []struct {
		name, contentType, body string
		status, gangs           int
	}{
		{"HCL", "application/hcl", seaHCL, 201, 1},
		{"HCL as text", "text/plain; charset=utf-8", seaHCL + strings.Replace(seaHCL, "sea", "lake", 1), 201, 2},
		{"JSON object", "application/json", seaJSON, 201, 1},
		{"JSON array", "application/json", "[" + seaJSON + "," + seaJSON + "]", 201, 2},
		{"no type", "", seaJSON, 415, 0},
		{"form", "application/x-www-form-urlencoded", seaJSON, 415, 0},
		{"HCL called JSON", "application/json", seaHCL, 400, 0},
		{"second of two invalid", "application/json", "[" + seaJSON + `,{"name": "lake", "template": "ddim", "gpus": 0}]`, 400, 0},
		{"too large", "application/json", `{"name": "` + strings.Repeat("x", config.MaxFileBytes) + `"}`, 413, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &scheduler{}
			answer, body := call(t, "POST", serve(t, s, nil).URL+"/v1/gangs", c.contentType, c.body)
			if answer.StatusCode != c.status || len(s.gangs) != c.gangs {
				t.Fatalf("got %d and %d gangs, want %d and %d: %s", answer.StatusCode, len(s.gangs), c.status, c.gangs, body)
			}
			if c.status == 201 {
				var got Gangs
				if err := json.Unmarshal([]byte(body), &got); err != nil || len(got.Gangs) != c.gangs || got.Gangs[0].ID != sea {
					t.Errorf("%v: %s", err, body)
				}
			}
		})
	}
}

func TestErrors(t *testing.T) {
	for _, c := range []struct {
		name   string
		fail   error
		status int
		code   string
		text   string
		retry  bool
	}{
		{"not found", fmt.Errorf("%w: %s", gang.ErrNotFound, sea), 404, CodeNotFound, "no such gang: sea-00000000", false},
		{"refused", gang.Refuse("no tier %q", "gold"), 422, CodeRefused, `no tier "gold"`, false},
		{"overloaded", fmt.Errorf("submit: %w", gang.ErrOverloaded), 429, CodeOverloaded, "too many wait", true},
		{"not now", fmt.Errorf("check template ddim: %w: %w", context.DeadlineExceeded, gang.ErrNotNow), 503, CodeNotNow, "try again in a moment", true},
		{"not leading", gang.ErrNotLeading, 503, CodeNotLeading, "does not lead", true},
		{"deposed meanwhile", fmt.Errorf("submit: %w (%w)", gang.ErrOutcomeUnknown, gang.ErrNotLeading), 502, CodeNotLeading, "may have been done", true},
		{"timeout", fmt.Errorf("write: %w", context.DeadlineExceeded), 504, CodeTimeout, "did not finish within 30s", true},
		{"any other", errors.New("a secret of the house"), 500, CodeInternal, "its log says why", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &scheduler{fail: c.fail}
			answer, body := call(t, "POST", serve(t, s, nil).URL+"/v1/gangs", "application/json", seaJSON)
			got := detail(t, body)
			if answer.StatusCode != c.status || got.Code != c.code || !strings.Contains(got.Message, c.text) {
				t.Errorf("got %d %s", answer.StatusCode, body)
			}
			if retry := answer.Header.Get("Retry-After") != ""; retry != c.retry || retry == (answer.Header.Get("X-Should-Retry") == "false") {
				t.Errorf("headers %v", answer.Header)
			}
			if strings.Contains(body, "secret") {
				t.Error("an internal error is told to the client")
			}
		})
	}
}

// The words of a fault are those that the CLI prints for the same file.
func TestUnreadableInTheWordsOfTheReader(t *testing.T) {
	src := strings.Replace(seaHCL, "16", "-1", 1)
	_, want := config.ParseGangs("request", []byte(src))
	answer, body := call(t, "POST", serve(t, &scheduler{}, nil).URL+"/v1/gangs", "application/hcl", src)
	got := detail(t, body)
	if answer.StatusCode != 400 || got.Message != want.Error() || got.Param == nil || *got.Param != "gpus" || got.Type != "invalid_request_error" {
		t.Errorf("got %d %s\nwant %v", answer.StatusCode, body, want)
	}
}

// A program finds what to mend without reading the message.
func TestARefusalNamesGangAndAttribute(t *testing.T) {
	unplaced := strings.Replace(seaHCL, "16", "5000", 1)
	for _, c := range []struct {
		src               string
		fail              error
		gang, param, text string
	}{
		{seaHCL, gang.NameRefused("sea", gang.RefuseField("gpus", "64 are too many")), "sea", "gpus", `gang "sea": gpus: 64 are too many`},
		{unplaced, nil, "", "gpus", "gpus: 5000 is not between"},
		{seaHCL, gang.Refuse("too many gangs"), "", "", "too many gangs"},
	} {
		answer, body := call(t, "POST", serve(t, &scheduler{fail: c.fail}, nil).URL+"/v1/gangs", "application/hcl", c.src)
		got := detail(t, body)
		param := ""
		if got.Param != nil {
			param = *got.Param
		}
		if answer.StatusCode != 422 || got.Gang != c.gang || param != c.param || !strings.Contains(got.Message, c.text) {
			t.Errorf("got %d %s", answer.StatusCode, body)
		}
	}
}

func TestAnUnknownStateIsAnsweredWithThoseThereAre(t *testing.T) {
	answer, body := call(t, "GET", serve(t, &scheduler{}, nil).URL+"/v1/gangs?state=foo", "", "")
	if got := detail(t, body); answer.StatusCode != 400 || !strings.HasPrefix(got.Message, `"foo" is no state of a gang: there are queued, reserved, launching, `) {
		t.Errorf("got %d %s", answer.StatusCode, body)
	}
}

func detail(t *testing.T, body string) ErrorDetail {
	t.Helper()
	var got ErrorBody
	if err := json.Unmarshal([]byte(body), &got); err != nil || got.Error.Message == "" {
		t.Fatalf("%v: not an error: %q", err, body)
	}
	return got.Error
}

func TestPathsAndMethods(t *testing.T) {
	url := serve(t, &scheduler{gangs: []gang.Status{seaIn(gang.Running)}}, nil).URL
	for _, c := range []struct {
		method, path string
		status       int
		allow        string
	}{
		{"GET", "/v1/gangs/sea-00000000", 200, ""},
		{"GET", "/v1/gangs/sea-11111111", 404, ""},
		{"GET", "/v1/gangs/sea", 400, ""},
		{"GET", "/v1/gangs/..%2f..%2fsea-00000000", 400, ""},
		{"GET", "/v1/gangs/" + strings.Repeat("a", 41) + "-00000000", 400, ""},
		{"DELETE", "/v1/gangs/sea-00000000", 405, "GET"},
		{"PUT", "/v1/gangs", 405, "POST, GET"},
		{"GET", "/v1/gangs/sea-00000000/cancel", 405, "POST"},
		{"POST", "/metrics", 405, "GET"},
		{"GET", "/v2/gangs", 404, ""},
		{"GET", "/", 404, ""},
		{"GET", "/healthz", 200, ""},
		{"GET", "/readyz", 200, ""},
		{"GET", "/v1/gangs?state=asleep", 400, ""},
		{"GET", "/v1/gangs?limit=0", 400, ""},
		{"GET", "/v1/gangs?limit=10000", 200, ""},
		{"GET", "/v1/gangs?limit=10001", 400, ""},
		{"GET", "/v1/gangs?order=asc", 400, ""},
	} {
		answer, body := call(t, c.method, url+c.path, "", "")
		if answer.StatusCode != c.status || answer.Header.Get("Allow") != c.allow {
			t.Errorf("%s %s: got %d, Allow %q, want %d, %q: %s", c.method, c.path, answer.StatusCode, answer.Header.Get("Allow"), c.status, c.allow, body)
		}
		if c.status >= 400 {
			detail(t, body)
		}
	}
}

func TestListFilters(t *testing.T) {
	s := &scheduler{}
	for i := range 6 {
		g := gang.Status{Record: gang.Record{ID: gang.ID(fmt.Sprintf("g%d-00000000", i)), Tenant: "acme", State: gang.Queued}}
		if i%2 == 1 {
			g.Tenant = "other"
		}
		if i >= 4 {
			g.State = gang.Running
		}
		s.gangs = append(s.gangs, g)
	}
	url := serve(t, s, nil).URL
	for query, want := range map[string]string{
		"":                            "g0 g1 g2 g3 g4 g5 of 6",
		"?state=running":              "g4 g5 of 2",
		"?tenant=acme&limit=2":        "g0 g2 of 3",
		"?prefix=g3":                  "g3 of 1",
		"?state=queued&tenant=nobody": "of 0",
	} {
		_, body := call(t, "GET", url+"/v1/gangs"+query, "", "")
		var list Gangs
		if err := json.Unmarshal([]byte(body), &list); err != nil || list.Gangs == nil {
			t.Fatalf("%v: %s", err, body)
		}
		var got []string
		for _, g := range list.Gangs {
			got = append(got, strings.TrimSuffix(string(g.ID), "-00000000"))
		}
		if text := strings.Join(append(got, "of", strconv.Itoa(list.Total)), " "); text != want {
			t.Errorf("%q: got %q, want %q", query, text, want)
		}
	}
}

func TestCancel(t *testing.T) {
	stopping := seaIn(gang.Stopping)
	stopping.Target = gang.Failed
	for _, c := range []struct {
		name   string
		g      gang.Status
		first  int
		second int
	}{
		{"running", seaIn(gang.Running), 202, 200},
		{"failing", stopping, 202, 200},
		{"cancelled", seaIn(gang.Cancelled), 200, 200},
		{"succeeded", seaIn(gang.Succeeded), 409, 409},
		{"failed", seaIn(gang.Failed), 409, 409},
	} {
		url := serve(t, &scheduler{gangs: []gang.Status{c.g}}, nil).URL + "/v1/gangs/" + string(sea) + "/cancel"
		for i, want := range []int{c.first, c.second} {
			answer, body := call(t, "POST", url, "", "")
			if answer.StatusCode != want {
				t.Errorf("%s, call %d: got %d, want %d: %s", c.name, i+1, answer.StatusCode, want, body)
			}
			if want == 409 && answer.Header.Get("X-Should-Retry") != "false" {
				t.Errorf("%s: the client is not told to leave it", c.name)
			}
		}
	}
}

func TestOfSeveralWrongFiltersTheSameIsNamed(t *testing.T) {
	url := serve(t, &scheduler{}, nil).URL + "/v1/gangs?zone=a&owner=b&limit=1&age=c&kind=d"
	for range 20 {
		if answer, body := call(t, "GET", url, "", ""); answer.StatusCode != 400 || *detail(t, body).Param != "age" {
			t.Fatalf("got %d %s", answer.StatusCode, body)
		}
	}
}

func TestClusterByNode(t *testing.T) {
	s := &scheduler{nodes: []cluster.NodeStatus{{ID: "1", Name: "n-1"}, {ID: "2", Name: "n-2"}, {ID: "3", Name: "n-3"}}}
	url := serve(t, s, nil).URL
	for query, want := range map[string]int{"": 3, "?node=1&node=n-3": 2, "?node=x": 0} {
		_, body := call(t, "GET", url+"/v1/cluster"+query, "", "")
		var got Cluster
		if err := json.Unmarshal([]byte(body), &got); err != nil || got.Nodes == nil || len(got.Nodes) != want {
			t.Errorf("%q: %v, %s", query, err, body)
		}
	}
}

func TestEvents(t *testing.T) {
	changes := make(chan gang.Status)
	s := &scheduler{watch: changes}
	url := serve(t, s, nil, func(s *Server) { s.ping = time.Millisecond }).URL
	r, err := http.NewRequestWithContext(t.Context(), "GET", url+"/v1/gangs/"+string(sea)+"/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Last-Event-ID", "41")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("Content-Type %q", answer.Header.Get("Content-Type"))
	}
	lines := bufio.NewScanner(answer.Body)
	for lines.Scan() && lines.Text() != ": ping" { // it pings while nothing happens
	}

	running, step, changed := seaIn(gang.Running), seaIn(gang.Running), seaIn(gang.Running)
	running.Progress = &gang.Progress{Step: 1, Steps: 9}
	step.Progress = &gang.Progress{Step: 2, Steps: 9}
	changed.Progress, changed.Why = step.Progress, "news"
	go func() {
		for _, g := range []gang.Status{seaIn(gang.Queued), running, step, changed, seaIn(gang.Succeeded)} {
			changes <- g
		}
	}()
	var got []string
	for lines.Scan() {
		if text := lines.Text(); text != "" && text[0] != ':' && !strings.HasPrefix(text, "data: {\"v\"") {
			got = append(got, text)
		}
	}
	want := []string{
		"id: 42", "event: status", "id: 43", "event: status", "id: 44", "event: progress", `data: {"step":2,"steps":9}`,
		"id: 45", "event: status", "id: 46", "event: done",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestArtifact(t *testing.T) {
	g := seaIn(gang.Succeeded)
	g.Artifact = &gang.Artifact{Key: "a/video.mp4", SHA256: "abc", Bytes: 5, ContentType: "video/mp4"}
	g.Thumbnail = &gang.Artifact{Key: "a/gone.png", SHA256: "def"}
	none := seaIn(gang.Running)
	none.ID = "lake-00000000"
	url := serve(t, &scheduler{gangs: []gang.Status{g, none}}, blobs{"a/video.mp4": "moov!"}).URL + "/v1/gangs/"

	answer, body := call(t, "GET", url+"sea-00000000/artifact", "", "")
	h := answer.Header
	if answer.StatusCode != 200 || body != "moov!" || h.Get("Content-Type") != "video/mp4" || h.Get("ETag") != `"abc"` ||
		h.Get("Content-Length") != "5" || h.Get("Content-Disposition") != `inline; filename=sea-00000000.mp4` {
		t.Errorf("got %d %q, %v", answer.StatusCode, body, h)
	}
	if answer, body = call(t, "HEAD", url+"sea-00000000/artifact", "", ""); answer.ContentLength != 5 || body != "" {
		t.Errorf("HEAD: got %d bytes announced, %q", answer.ContentLength, body)
	}
	if answer, _ = call(t, "GET", url+"sea-00000000/artifact", "", "", "If-None-Match", `"x", "abc"`); answer.StatusCode != 304 {
		t.Errorf("If-None-Match: got %d", answer.StatusCode)
	}
	for path, text := range map[string]string{
		"sea-00000000/thumbnail": "no longer in the blob store",
		"lake-00000000/artifact": "lake-00000000 is running and has no artifact",
	} {
		answer, body := call(t, "GET", url+path, "", "")
		if answer.StatusCode != 404 || !strings.Contains(detail(t, body).Message, text) || answer.Header.Get("ETag") != "" {
			t.Errorf("%s: got %d %s", path, answer.StatusCode, body)
		}
	}
}

func TestRequestID(t *testing.T) {
	url := serve(t, &scheduler{}, nil).URL + "/healthz"
	if answer, _ := call(t, "GET", url, "", "", "X-Request-Id", "req_7"); answer.Header.Get("X-Request-Id") != "req_7" {
		t.Errorf("the caller's ID became %q", answer.Header.Get("X-Request-Id"))
	}
	if answer, _ := call(t, "GET", url, "", "", "X-Request-Id", `a"b`); len(answer.Header.Get("X-Request-Id")) != 24 {
		t.Errorf("an unfit ID became %q", answer.Header.Get("X-Request-Id"))
	}
}

func TestForwarding(t *testing.T) {
	leading := &scheduler{watch: make(chan gang.Status, 1)}
	leader := serve(t, leading, nil)
	follower := serve(t, &scheduler{follow: true, leader: leader.URL}, nil)

	answer, body := call(t, "POST", follower.URL+"/v1/gangs", "application/hcl", seaHCL, "X-Request-Id", "r1")
	if answer.StatusCode != 201 || len(leading.gangs) != 1 || len(answer.Header.Values("X-Request-Id")) != 1 {
		t.Errorf("got %d %s, %v", answer.StatusCode, body, answer.Header)
	}
	leading.watch <- seaIn(gang.Succeeded)
	if _, body = call(t, "GET", follower.URL+"/v1/gangs/"+string(sea)+"/events", "", ""); !strings.Contains(body, "event: done") {
		t.Errorf("events through a follower: %q", body)
	}
	if answer, _ = call(t, "POST", follower.URL+"/v1/gangs", "application/json", strings.Repeat(" ", config.MaxFileBytes+1)); answer.StatusCode != 413 {
		t.Errorf("a large body through a follower: got %d", answer.StatusCode)
	}
	_, body = call(t, "GET", follower.URL+"/readyz", "", "")
	if !strings.Contains(body, `"leading":false`) {
		t.Errorf("a follower answers for itself: %s", body)
	}
}

func TestForwardingThatCannotBe(t *testing.T) {
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone.Close()
	a := &scheduler{follow: true}
	first := serve(t, a, nil)
	second := serve(t, &scheduler{follow: true, leader: first.URL}, nil)
	for name, c := range map[string]struct{ leader, text string }{
		"unknown":     {"", "knows of none"},
		"in a circle": {second.URL, "another agent took it for the leader"},
		"itself":      {first.URL, "another agent took it for the leader"},
		"gone":        {gone.Addr().String(), "cannot be reached"},
	} {
		a.leader = c.leader
		answer, body := call(t, "GET", first.URL+"/v1/gangs", "", "")
		if answer.StatusCode != 503 || answer.Header.Get("Retry-After") == "" || !strings.Contains(detail(t, body).Message, c.text) {
			t.Errorf("%s: got %d %s", name, answer.StatusCode, body)
		}
	}
}

// A leader that is cut off after it took a submission may have done it, so the
// answer must not be one after which a retry is safe.
func TestForwardingThatBreaksOff(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = http.ReadRequest(bufio.NewReader(conn))
			conn.Close()
		}
	}()
	follower := serve(t, &scheduler{follow: true, leader: l.Addr().String()}, nil)
	answer, body := call(t, "POST", follower.URL+"/v1/gangs", "application/hcl", seaHCL)
	if answer.StatusCode != 502 || !strings.Contains(body, "may have been done") {
		t.Errorf("got %d %s", answer.StatusCode, body)
	}
}

func TestPanicIsAnAnswer(t *testing.T) {
	url := serve(t, &scheduler{gangs: []gang.Status{{Record: gang.Record{ID: sea, Artifact: &gang.Artifact{Key: "k"}}}}}, nil).URL
	answer, body := call(t, "GET", url+"/v1/gangs/"+string(sea)+"/artifact", "", "") // no blob store: nil
	if answer.StatusCode != 500 || detail(t, body).Code != CodeInternal {
		t.Errorf("got %d %s", answer.StatusCode, body)
	}
}

func TestMetrics(t *testing.T) {
	url := serve(t, &scheduler{}, nil).URL
	call(t, "GET", url+"/v1/gangs/sea-00000000", "", "")
	_, body := call(t, "GET", url+"/metrics", "", "")
	if want := `gangd_http_requests_total{method="GET",route="/v1/gangs/{id}",status="404"} 1`; !strings.Contains(body, want) {
		t.Errorf("%s is not in:\n%s", want, body)
	}
}

// At shutdown streams end at once, requests in progress finish, and new ones
// are not taken.
func TestServeEnds(t *testing.T) {
	s := &scheduler{watch: make(chan gang.Status), arrived: make(chan struct{}), hold: make(chan struct{})}
	server, err := New(Options{Scheduler: s, Registry: prometheus.NewRegistry(), Log: hclog.NewNullLogger()})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(ctx, l) }()

	url := "http://" + l.Addr().String() + "/v1/gangs"
	stream, err := http.Get(url + "/" + string(sea) + "/events")
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Body.Close()
	submitted := make(chan int, 1)
	go func() {
		answer, err := http.Post(url, "application/hcl", strings.NewReader(seaHCL))
		if err != nil {
			submitted <- 0
			return
		}
		answer.Body.Close()
		submitted <- answer.StatusCode
	}()
	<-s.arrived
	stop()
	if _, err := bufio.NewReader(stream.Body).ReadString(0); err == nil {
		t.Error("the stream did not end")
	}
	close(s.hold)
	if status := <-submitted; status != 201 {
		t.Errorf("the submission in progress got %d", status)
	}
	if err := <-ended; err != nil {
		t.Errorf("Serve: %v", err)
	}
	if _, err := http.Get(url); err == nil {
		t.Error("a request after the end was answered")
	}
}
