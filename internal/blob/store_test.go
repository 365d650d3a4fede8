package blob

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	_ "gocloud.dev/blob/memblob"

	"github.com/gangd/gangd/internal/gang"
)

// stores runs a test on each kind of store that needs no server.
func stores(t *testing.T, test func(t *testing.T, s *Store)) {
	for _, kind := range []string{"file", "mem", "s3"} {
		t.Run(kind, func(t *testing.T) {
			url := "mem://"
			switch kind {
			case "file":
				url = "file://" + filepath.Join(t.TempDir(), "not", "there", "yet")
			case "s3":
				url = newFakeS3(t).url
			}
			test(t, openStore(t, url))
		})
	}
}

func openStore(t *testing.T, url string) *Store {
	t.Helper()
	s, err := Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	s.retry = backoff{attempts: 4, first: time.Millisecond, limit: time.Millisecond}
	t.Cleanup(func() { s.Close() })
	return s
}

func TestArtifactIsStoredOnceUnderItsContent(t *testing.T) {
	stores(t, func(t *testing.T, s *Store) {
		content := bytes.Repeat([]byte("frame "), 1<<16)
		var first gang.Artifact
		for range 2 {
			a, err := s.PutContent(t.Context(), bytes.NewReader(content), ".mp4", "video/mp4")
			if err != nil {
				t.Fatal(err)
			}
			if first.Key == "" {
				first = a
			}
			if a != first || a.Key != "artifacts/"+a.SHA256+".mp4" || a.Bytes != int64(len(content)) || a.ContentType != "video/mp4" {
				t.Fatalf("got artifact %+v, first %+v", a, first)
			}
		}
		var back bytes.Buffer
		if err := s.Fetch(t.Context(), first, &back); err != nil || !bytes.Equal(back.Bytes(), content) {
			t.Fatalf("fetched %d bytes, error %v", back.Len(), err)
		}
		r, err := s.Open(t.Context(), first.Key)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		if _, err := r.Seek(-6, io.SeekEnd); err != nil {
			t.Fatal(err)
		}
		if tail, err := io.ReadAll(r); string(tail) != "frame " || err != nil {
			t.Fatalf("the end reads %q, %v", tail, err)
		}
	})
}

func TestFetchTellsDamage(t *testing.T) {
	stores(t, func(t *testing.T, s *Store) {
		a, err := s.PutContent(t.Context(), strings.NewReader("whole"), "", "text/plain")
		if err != nil {
			t.Fatal(err)
		}
		long, short, other, gone, nosum := a, a, a, a, a
		long.Bytes++
		short.Bytes--
		other.SHA256 = strings.Repeat("0", 64)
		gone.Key += "x"
		nosum.SHA256 = ""
		for name, c := range map[string]struct {
			a    gang.Artifact
			want error
		}{
			"longer than stored": {long, ErrDamaged}, "shorter": {short, ErrDamaged},
			"other content": {other, ErrDamaged}, "gone": {gone, ErrNotFound},
		} {
			if err := s.Fetch(t.Context(), c.a, io.Discard); !errors.Is(err, c.want) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if err := s.Fetch(t.Context(), nosum, io.Discard); err == nil {
			t.Error("an artifact without a SHA-256 was fetched unchecked")
		}
	})
}

func TestPutRefusesChangingContent(t *testing.T) {
	stores(t, func(t *testing.T, s *Store) {
		c := &changing{Reader: strings.NewReader("first reading")}
		if _, err := s.PutContent(t.Context(), c, "", ""); !errors.Is(err, ErrDamaged) {
			t.Fatalf("got %v", err)
		}
		sum, _, _ := digest(strings.NewReader("first reading"))
		if _, err := s.Stat(t.Context(), fmt.Sprintf("artifacts/%x", sum)); !errors.Is(err, ErrNotFound) {
			t.Fatalf("a torn artifact was left behind: %v", err)
		}
	})
}

// changing reads differently the second time.
type changing struct {
	*strings.Reader
	seeks int
}

func (c *changing) Seek(offset int64, whence int) (int64, error) {
	if c.seeks++; c.seeks == 2 {
		c.Reader = strings.NewReader("other reading")
	}
	return c.Reader.Seek(offset, whence)
}

func TestPublishOnce(t *testing.T) {
	type manifest struct{ Step int }
	stores(t, func(t *testing.T, s *Store) {
		const key = "gangs/sea-1/checkpoints/8"
		var got manifest
		if err := s.ReadManifest(t.Context(), key, &got); !errors.Is(err, ErrNotFound) {
			t.Fatalf("before: %v", err)
		}
		for range 2 {
			if err := s.Publish(t.Context(), key, manifest{8}); err != nil {
				t.Fatal(err)
			}
		}
		err := s.Publish(t.Context(), key, manifest{9})
		var published *PublishedError
		if !errors.As(err, &published) || !errors.Is(err, ErrAlreadyPublished) || string(published.Existing) != `{"Step":8}` {
			t.Fatalf("other content: %v", err)
		}
		if err := s.ReadManifest(t.Context(), key, &got); err != nil || got.Step != 8 {
			t.Fatalf("after: %+v, %v", got, err)
		}
	})
}

func TestOnePublisherWins(t *testing.T) {
	stores(t, func(t *testing.T, s *Store) {
		const publishers = 8
		results := make([]error, publishers)
		var wg sync.WaitGroup
		for i := range publishers {
			wg.Go(func() { results[i] = s.Publish(t.Context(), "videos/v1", i) })
		}
		wg.Wait()
		winners := 0
		for i, err := range results {
			switch {
			case err == nil:
				winners++
			case !errors.Is(err, ErrAlreadyPublished):
				t.Errorf("publisher %d: %v", i, err)
			}
		}
		if winners != 1 {
			t.Fatalf("%d publishers won", winners)
		}
	})
}

func TestRefusedInput(t *testing.T) {
	s := openStore(t, "mem://")
	for _, key := range []string{"", "/a", "a/", "a//b", "../a", "a/../b", ".partial/x", "a b", "a\nb", strings.Repeat("a", maxKeyLen+1)} {
		if err := s.Publish(t.Context(), key, 1); err == nil {
			t.Errorf("key %q was taken", key)
		}
		if _, err := s.Stat(t.Context(), key); err == nil {
			t.Errorf("key %q was looked up", key)
		}
	}
	if err := s.Publish(t.Context(), "artifacts/x", 1); err == nil {
		t.Error("a manifest was put among the artifacts")
	}
	if err := s.Publish(t.Context(), "big", strings.Repeat("x", maxManifestBytes)); err == nil {
		t.Error("a manifest over the limit was taken")
	}
	if _, err := s.PutContent(t.Context(), strings.NewReader(""), "/../x", ""); err == nil {
		t.Error("an extension that is none was taken")
	}
	for _, url := range []string{"file://relative/dir", "file:///dir?metadata=x", "nfs://host/dir", "::"} {
		if _, err := Open(t.Context(), url); err == nil {
			t.Errorf("store %q was opened", url)
		}
	}
}

func TestDirectoryKeepsNoPartialFiles(t *testing.T) {
	root := t.TempDir()
	s := openStore(t, "file://"+root)
	old, young := filepath.Join(root, partialDir, "old"), filepath.Join(root, partialDir, "young")
	for path, age := range map[string]time.Duration{old: 2 * partialAge, young: 0} {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, time.Time{}, time.Now().Add(-age)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.PutContent(t.Context(), strings.NewReader("x"), ".txt", ""); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.PutContent(ctx, strings.NewReader("y"), ".txt", ""); !errors.Is(err, context.Canceled) {
		t.Fatalf("cancelled: %v", err)
	}
	openStore(t, "file://"+root)
	entries, err := os.ReadDir(filepath.Join(root, partialDir))
	if err != nil || len(entries) != 1 || entries[0].Name() != "young" {
		t.Fatalf("partial files: %v, %v", entries, err)
	}
}
