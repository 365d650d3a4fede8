package blob

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// maxManifestBytes bounds a manifest: it is read into memory whole.
const maxManifestBytes = 1 << 20

// ErrAlreadyPublished is wrapped where other content was published at a key.
var ErrAlreadyPublished = errors.New("something else is published there")

// PublishedError says that a key holds other content than the one to be
// published. It wraps ErrAlreadyPublished.
type PublishedError struct {
	Key string
	// Existing is the JSON that was published first.
	Existing []byte
}

func (e *PublishedError) Error() string {
	const shown = 200
	text := string(e.Existing)
	if len(text) > shown {
		text = text[:shown] + ".."
	}
	return fmt.Sprintf("publish %s: %v: %s", e.Key, ErrAlreadyPublished, text)
}

func (e *PublishedError) Unwrap() error { return ErrAlreadyPublished }

// Publish writes manifest as JSON to key, once. It returns when that is
// durable; the same content there already is success, so that a caller who
// never learnt how an earlier call ended calls again. Other content gives a
// *PublishedError. Transient errors are retried.
func (s *Store) Publish(ctx context.Context, key string, manifest any) error {
	if err := checkKey(key); err != nil {
		return fmt.Errorf("publish: %w", err)
	}
	if strings.HasPrefix(key, artifactPrefix) {
		return fmt.Errorf("publish %s: %s is for content named after itself: choose another key", key, artifactPrefix)
	}
	content, err := json.Marshal(manifest)
	if err != nil {
		return fmt.Errorf("publish %s: encode the manifest: %w", key, err)
	}
	if len(content) > maxManifestBytes {
		return fmt.Errorf("publish %s: the manifest has %d bytes, at most %d are taken: store its bulk as an artifact", key, len(content), maxManifestBytes)
	}
	err = s.retry.do(ctx, requestTimeout, func(ctx context.Context) error {
		return s.creator.create(ctx, key, bytes.NewReader(content), "application/json")
	})
	if !errors.Is(err, errExists) {
		if err != nil {
			return s.failed("publish", key, err)
		}
		return nil
	}
	// A write whose answer was lost finds itself here.
	existing, err := s.manifest(ctx, key)
	if err != nil {
		return err
	}
	if !bytes.Equal(existing, content) {
		return &PublishedError{Key: key, Existing: existing}
	}
	return nil
}

// ReadManifest decodes the manifest at key; the error wraps ErrNotFound if
// none was published.
func (s *Store) ReadManifest(ctx context.Context, key string, into any) error {
	content, err := s.manifest(ctx, key)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(content, into); err != nil {
		return fmt.Errorf("read manifest %s in %s: %w: %w", key, s.url, ErrDamaged, err)
	}
	return nil
}

func (s *Store) manifest(ctx context.Context, key string) ([]byte, error) {
	if err := checkKey(key); err != nil {
		return nil, fmt.Errorf("read manifest: %w", err)
	}
	var content []byte
	err := s.retry.do(ctx, requestTimeout, func(ctx context.Context) error {
		r, err := s.bucket.NewReader(ctx, key, nil)
		if err != nil {
			return err
		}
		defer r.Close()
		if r.Size() > maxManifestBytes {
			return permanent(fmt.Errorf("%w: a manifest has at most %d bytes, this has %d", ErrDamaged, maxManifestBytes, r.Size()))
		}
		content, err = io.ReadAll(r)
		return err
	})
	if err != nil {
		return nil, s.failed("read manifest", key, err)
	}
	return content, nil
}
