package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gangd/gangd/internal/gang"
)

// Leaving is not cancelling, and says so.
func TestInterruptedSubmit(t *testing.T) {
	w := &world{life: map[string][]gang.Status{"sea": life("sea", gang.Succeeded)[:5]}}
	ctx, interrupt := context.WithCancel(t.Context())
	s := session{args: []string{"submit", "-"}, stdin: seaHCL, address: start(t, w)}
	out := &trigger{word: "running", pull: interrupt}
	var errOut bytes.Buffer
	term := &terminal{
		in: strings.NewReader(s.stdin), out: out, err: &errOut, now: func() time.Time { return clock },
		width: func() int { return 0 }, getenv: func(string) string { return s.address },
	}
	code := run(ctx, term, s.args)
	compare(t, "submit-interrupted", transcript(s, code, out.String(), errOut.String()))
}

// trigger pulls once it has been written a word.
type trigger struct {
	bytes.Buffer
	word string
	pull func()
}

func (w *trigger) Write(b []byte) (int, error) {
	n, err := w.Buffer.Write(b)
	if strings.Contains(w.String(), w.word) {
		w.pull()
	}
	return n, err
}

func TestSeveralGangsAreFollowedAtOnce(t *testing.T) {
	w := &world{life: map[string][]gang.Status{"sea": life("sea", gang.Succeeded), "lake": life("lake", gang.Failed)}}
	src := seaHCL + strings.Replace(seaHCL, "sea", "lake", 1)
	code, out, errOut := play(t.Context(), session{args: []string{"submit", "-"}, stdin: src, address: start(t, w)})
	if code != exitRefused || errOut != "" {
		t.Errorf("exit %d, %s", code, errOut)
	}
	for _, want := range []string{"==> sea-00000000 succeeded", "==> lake-00000000 failed", "    lake-00000000    +2m10s  running\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in:\n%s", want, out)
		}
	}
}

// A stream that breaks off is opened again, until the gang has ended.
func TestBrokenStreamGoesOn(t *testing.T) {
	w := &world{life: map[string][]gang.Status{"sea": life("sea", gang.Succeeded)}}
	w.broken.Store(1)
	code, out, errOut := play(t.Context(), session{args: []string{"submit", "-"}, stdin: seaHCL, address: start(t, w)})
	if code != exitOK || strings.Count(out, "succeeded") != 1 || w.broken.Load() > 0 {
		t.Errorf("exit %d:\n%s%s", code, out, errOut)
	}
}

// A leader that is deposed ends its streams, and for a moment none leads.
func TestAGangIsFollowedFromOneLeaderToTheNext(t *testing.T) {
	w := &world{life: map[string][]gang.Status{"sea": life("sea", gang.Succeeded)}}
	w.broken.Store(1)
	w.leaderless.Store(2)
	code, out, errOut := play(t.Context(), session{args: []string{"submit", "-"}, stdin: seaHCL, address: start(t, w)})
	if code != exitOK || strings.Count(out, "succeeded") != 1 || w.leaderless.Load() > 0 || strings.Count(out, "trying again: this agent does not lead") != 1 {
		t.Errorf("exit %d:\n%s%s", code, out, errOut)
	}
}

// A leader that is stopped, or cut off, ends nothing: its streams stand, and
// bring nothing.
func TestAStreamThatBringsNothingIsOpenedAgain(t *testing.T) {
	streams := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if streams++; streams == 1 {
			fmt.Fprint(w, "id: 1\nevent: status\ndata: {\"state\":\"running\"}\n\n")
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
			return
		}
		fmt.Fprint(w, "id: 2\nevent: done\ndata: {\"state\":\"succeeded\"}\n\n")
	}))
	defer server.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	updates := make(chan update)
	go (&client{address: server.URL, quiet: 50 * time.Millisecond, http: server.Client()}).watch(ctx, "sea-00000000", updates)
	for {
		select {
		case u := <-updates:
			if u.err != nil || u.retrying != nil && !errors.Is(u.retrying, errQuiet) {
				t.Fatalf("told %v, %v", u.err, u.retrying)
			}
			if u.status != nil && u.status.State == gang.Succeeded {
				return
			}
		case <-ctx.Done():
			t.Fatal("the end of the gang is not heard")
		}
	}
}

func TestABusyAgentIsAskedAgain(t *testing.T) {
	for _, with := range []error{gang.ErrOverloaded, gang.ErrNotNow} {
		w := &world{busyWith: with}
		w.busy.Store(2)
		address := start(t, w)
		errOut := new(bytes.Buffer)
		submit := func(patience time.Duration) int {
			return run(t.Context(), &terminal{
				in: strings.NewReader(seaHCL), out: new(bytes.Buffer), err: errOut, now: time.Now,
				getenv: func(string) string { return address }, patience: patience,
			}, []string{"submit", "-detach", "-"})
		}
		if code := submit(0); code != exitRefused || !strings.Contains(errOut.String(), with.Error()) {
			t.Errorf("without patience: exit %d: %s", code, errOut)
		}
		if code := submit(10 * time.Second); code != exitOK || w.busy.Load() >= 0 {
			t.Errorf("%v: exit %d: %s", with, code, errOut)
		}
	}
}

func TestNobodyListens(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	code, _, errOut := play(t.Context(), session{args: []string{"status"}, address: l.Addr().String()})
	if code != exitRefused || !strings.Contains(errOut, "at http://"+l.Addr().String()+": ") || !strings.Contains(errOut, "GANGD_ADDR") {
		t.Errorf("exit %d: %s", code, errOut)
	}
}

func TestRanges(t *testing.T) {
	for _, c := range []struct {
		indexes []int
		want    string
	}{
		{nil, ""}, {[]int{3}, "3"}, {[]int{0, 1, 2, 3, 4, 5, 6, 7}, "0-7"}, {[]int{0, 2, 3, 7}, "0,2-3,7"}, {[]int{4, 5, 0, 1}, "4-5,0-1"},
	} {
		if got := ranges(c.indexes); got != c.want {
			t.Errorf("%v: got %q, want %q", c.indexes, got, c.want)
		}
	}
}

func TestDurations(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0.0s", 1234 * time.Millisecond: "1.2s", 9999 * time.Millisecond: "9.9s", 59 * time.Second: "59s",
		61 * time.Second: "1m01s", 25 * time.Hour: "1d01h", 3*time.Hour + 4*time.Minute: "3h04m",
	} {
		if got := duration(d); got != want {
			t.Errorf("%v: got %q, want %q", d, got, want)
		}
	}
}

// Of a later attempt, what came before it was not all waiting.
func TestWhereTheTimeWent(t *testing.T) {
	g := life("sea", gang.Succeeded)
	end := g[len(g)-1]
	want := " after 9.0s: waited 1.2s, started in 1.3s, ran 6.5s"
	if got := spentText(end); got != want {
		t.Errorf("first attempt: %q, want %q", got, want)
	}
	end.Attempt = 2
	want = " after 9.0s: attempt 2 started in 1.3s, ran 6.5s"
	if got := spentText(end); got != want {
		t.Errorf("second attempt: %q, want %q", got, want)
	}
}
