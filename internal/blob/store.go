package blob

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"regexp"
	"time"

	gocloud "gocloud.dev/blob"
	"gocloud.dev/blob/fileblob"
	"gocloud.dev/blob/s3blob"
	"gocloud.dev/gcerrors"
)

// artifactPrefix is where content lies under its own name.
const artifactPrefix = "artifacts/"

// validateResponses is a parameter of an s3:// URL.
const validateResponses = "response_checksum_validation"

var (
	// ErrNotFound is wrapped where nothing lies at a key.
	ErrNotFound = errors.New("no such object")
	// ErrDamaged is wrapped where an object is not what its name or its record
	// says.
	ErrDamaged = errors.New("object is damaged")
	// errExists is what a creator answers where an object lies at the key.
	errExists = errors.New("object exists")
)

// creator writes an object to a key at which nothing lies, whole and durable
// or not at all, and answers with errExists if something does.
type creator interface {
	create(ctx context.Context, key string, content io.Reader, contentType string) error
}

// Store is safe for use by many goroutines.
type Store struct {
	url     string
	bucket  *gocloud.Bucket
	creator creator
	retry   backoff
}

// Open opens the store at a URL: file:///dir, which is created if it is
// absent, or s3://bucket with the parameters of gocloud.dev/blob/s3blob (and
// any other scheme that the program links in).
func Open(ctx context.Context, storeURL string) (*Store, error) {
	u, err := url.Parse(storeURL)
	if err != nil {
		return nil, fmt.Errorf("open blob store: %w", err)
	}
	s := &Store{url: u.Redacted(), retry: defaultBackoff}
	if u.Scheme == fileblob.Scheme {
		err = s.openDir(u)
	} else {
		err = s.openBucket(ctx, u)
	}
	if err != nil {
		return nil, fmt.Errorf("open blob store %s: %w", s.url, err)
	}
	return s, nil
}

func (s *Store) openDir(u *url.URL) error {
	if u.Host != "" || u.Path == "" || u.RawQuery != "" {
		return errors.New("want an absolute directory and no parameters, as in file:///var/lib/gangd/blobs")
	}
	dir, err := openDirectory(u.Path)
	if err != nil {
		return err
	}
	s.bucket, err = fileblob.OpenBucket(u.Path, &fileblob.Options{Metadata: fileblob.MetadataDontWrite})
	s.creator = dir
	return err
}

func (s *Store) openBucket(ctx context.Context, u *url.URL) error {
	if q := u.Query(); u.Scheme == s3blob.Scheme && !q.Has(validateResponses) {
		// The client would complain of every object that carries no checksum of
		// its own; what is fetched is checked against its SHA-256.
		q.Set(validateResponses, "when_required")
		u.RawQuery = q.Encode()
	}
	bucket, err := gocloud.DefaultURLMux().OpenBucketURL(ctx, u)
	if err != nil {
		return fmt.Errorf("use file:///dir or s3://bucket?region=NAME: %w", err)
	}
	s.bucket, s.creator = bucket, bucketCreator{bucket}
	return nil
}

// Close releases the store's connections.
func (s *Store) Close() error { return s.bucket.Close() }

// Object describes what lies at a key.
type Object struct {
	Key   string
	Bytes int64
	// ContentType is what the store kept; a directory keeps none.
	ContentType string
	Modified    time.Time
}

// Stat describes the object at key; the error wraps ErrNotFound if there is
// none.
func (s *Store) Stat(ctx context.Context, key string) (Object, error) {
	if err := checkKey(key); err != nil {
		return Object{}, err
	}
	var o Object
	err := s.retry.do(ctx, requestTimeout, func(ctx context.Context) error {
		attrs, err := s.bucket.Attributes(ctx, key)
		if err != nil {
			return err
		}
		o = Object{Key: key, Bytes: attrs.Size, ContentType: attrs.ContentType, Modified: attrs.ModTime}
		return nil
	})
	if err != nil {
		return Object{}, s.failed("stat", key, err)
	}
	return o, nil
}

// Open reads the object at key, from any offset, without checking its
// content; ctx bounds the reading. The error wraps ErrNotFound if there is no
// such object.
func (s *Store) Open(ctx context.Context, key string) (io.ReadSeekCloser, error) {
	if err := checkKey(key); err != nil {
		return nil, err
	}
	var r *gocloud.Reader
	// The reader lives as long as the context it was opened with, so an attempt
	// gets the caller's and no timeout of its own.
	err := s.retry.do(ctx, 0, func(ctx context.Context) (err error) {
		r, err = s.bucket.NewReader(ctx, key, nil)
		return err
	})
	if err != nil {
		return nil, s.failed("open", key, err)
	}
	return r, nil
}

// failed names the attempt in an error of the store, and wraps ErrNotFound
// where that is the reason.
func (s *Store) failed(action, key string, err error) error {
	if gcerrors.Code(err) == gcerrors.NotFound {
		return fmt.Errorf("%s %s in %s: %w", action, key, s.url, ErrNotFound)
	}
	return fmt.Errorf("%s %s in %s: %w", action, key, s.url, err)
}

const maxKeyLen = 512

// keyRule admits keys that every store and every shell leaves as they are. A
// segment does not begin with a dot, so that none is "..", and a directory has
// room for files of its own.
var keyRule = regexp.MustCompile(`^[A-Za-z0-9_-][A-Za-z0-9._-]*(/[A-Za-z0-9_-][A-Za-z0-9._-]*)*$`)

func checkKey(key string) error {
	if len(key) > maxKeyLen || !keyRule.MatchString(key) {
		return fmt.Errorf("blob key %q: use at most %d of A-Z a-z 0-9 . _ - in segments joined by '/', none of which begins with a '.'", key, maxKeyLen)
	}
	return nil
}

// bucketCreator relies on the conditional writes of an object store.
type bucketCreator struct{ bucket *gocloud.Bucket }

func (c bucketCreator) create(ctx context.Context, key string, content io.Reader, contentType string) error {
	// A writer whose context has ended before Close writes nothing.
	ctx, abandon := context.WithCancel(ctx)
	defer abandon()
	w, err := c.bucket.NewWriter(ctx, key, &gocloud.WriterOptions{ContentType: contentType, IfNotExist: true})
	if err != nil {
		return err
	}
	if _, err = io.Copy(w, content); err != nil {
		abandon()
	}
	err = errors.Join(err, w.Close())
	if gcerrors.Code(err) == gcerrors.FailedPrecondition {
		return errExists
	}
	return err
}
