package blob

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"strings"
	"sync"
	"testing"
	"time"
)

// fakeS3 answers the requests that the store makes of one bucket, with
// conditional writes, and can be told to fail some of them first.
type fakeS3 struct {
	url string

	mu      sync.Mutex
	objects map[string][]byte
	// failures are the statuses and S3 codes to answer the next writes with.
	failures []failure
	// loseAnswer performs the next write and answers 500.
	loseAnswer bool
	writes     int
}

type failure struct {
	status int
	code   string
}

func newFakeS3(t *testing.T) *fakeS3 {
	t.Setenv("AWS_ACCESS_KEY_ID", "test")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "test")
	f := &fakeS3{objects: make(map[string][]byte)}
	server := httptest.NewServer(f)
	t.Cleanup(server.Close)
	f.url = "s3://videos?region=us-east-1&use_path_style=true&endpoint=" + server.URL
	return f
}

func (f *fakeS3) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	key := strings.TrimPrefix(r.URL.Path, "/videos/")
	object, there := f.objects[key]
	switch {
	case r.Method == http.MethodPut:
		f.put(w, r, key, there)
	case !there:
		refuse(w, http.StatusNotFound, "NoSuchKey")
	default:
		http.ServeContent(w, r, "", time.Unix(1, 0), strings.NewReader(string(object)))
	}
}

func (f *fakeS3) put(w http.ResponseWriter, r *http.Request, key string, there bool) {
	f.writes++
	content, err := io.ReadAll(body(r))
	switch {
	case err != nil:
		refuse(w, http.StatusBadRequest, "IncompleteBody")
	case len(f.failures) > 0:
		refuse(w, f.failures[0].status, f.failures[0].code)
		f.failures = f.failures[1:]
	case there && r.Header.Get("If-None-Match") == "*":
		refuse(w, http.StatusPreconditionFailed, "PreconditionFailed")
	default:
		f.objects[key] = content
		if f.loseAnswer {
			f.loseAnswer = false
			refuse(w, http.StatusInternalServerError, "InternalError")
		}
	}
}

// body undoes the encoding in which the client sends what it sums up as it
// goes. Its chunks carry no signatures over plain HTTP with trailers only.
func body(r *http.Request) io.Reader {
	if !strings.Contains(r.Header.Get("Content-Encoding"), "aws-chunked") {
		return r.Body
	}
	return httputil.NewChunkedReader(bufio.NewReader(r.Body))
}

func refuse(w http.ResponseWriter, status int, code string) {
	w.WriteHeader(status)
	fmt.Fprintf(w, "<Error><Code>%s</Code><Message>%s</Message></Error>", code, code)
}

func TestTransientFailuresAreRetried(t *testing.T) {
	f := newFakeS3(t)
	s := openStore(t, f.url)
	f.failures = []failure{{409, "ConditionalRequestConflict"}, {409, "OperationAborted"}}
	if err := s.Publish(t.Context(), "videos/v1", "one"); err != nil {
		t.Fatal(err)
	}
	if f.writes != 3 {
		t.Errorf("%d writes", f.writes)
	}
}

func TestRetriesAreBounded(t *testing.T) {
	s := openStore(t, "mem://")
	broken := &brokenCreator{}
	s.creator = broken
	if _, err := s.PutContent(t.Context(), strings.NewReader("x"), "", ""); !errors.Is(err, errBroken) {
		t.Fatalf("got %v", err)
	}
	if broken.calls != s.retry.attempts {
		t.Errorf("%d attempts, want %d", broken.calls, s.retry.attempts)
	}
}

var errBroken = errors.New("connection reset")

type brokenCreator struct{ calls int }

func (c *brokenCreator) create(context.Context, string, io.Reader, string) error {
	c.calls++
	return errBroken
}

func TestRefusalsAreNotRetried(t *testing.T) {
	f := newFakeS3(t)
	s := openStore(t, f.url)
	f.failures = []failure{{403, "AccessDenied"}}
	if err := s.Publish(t.Context(), "videos/v1", "one"); err == nil || f.writes != 1 {
		t.Fatalf("%d writes, error %v", f.writes, err)
	}
}

func TestLostAnswerOfPublishIsSuccess(t *testing.T) {
	f := newFakeS3(t)
	s := openStore(t, f.url)
	f.loseAnswer = true
	if err := s.Publish(t.Context(), "videos/v1", "one"); err != nil {
		t.Fatal(err)
	}
	if err := s.Publish(t.Context(), "videos/v1", "two"); !errors.Is(err, ErrAlreadyPublished) {
		t.Fatalf("got %v", err)
	}
}
