package blob

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"regexp"
	"time"

	"github.com/gangd/gangd/internal/gang"
)

// slowestBytesPerSecond is the rate below which the transfer of an artifact is
// given up.
const slowestBytesPerSecond = 1 << 20

var extRule = regexp.MustCompile(`^(\.[a-z0-9]{1,10})?$`)

// PutContent stores content, which is read twice from its start, under
// artifacts/ and its SHA-256. ext is empty or like ".mp4". It returns once the
// object is durable; an object of this content that is there already is
// success. Transient errors are retried. Content that changes while it is read
// is refused with an error that wraps ErrDamaged.
func (s *Store) PutContent(ctx context.Context, content io.ReadSeeker, ext, contentType string) (gang.Artifact, error) {
	if !extRule.MatchString(ext) {
		return gang.Artifact{}, fmt.Errorf("store artifact: extension %q is none: use a '.' and up to 10 of a-z and 0-9", ext)
	}
	sum, size, err := digest(content)
	if err != nil {
		return gang.Artifact{}, fmt.Errorf("store artifact: read its content: %w", err)
	}
	a := gang.Artifact{
		Key:         artifactPrefix + hex.EncodeToString(sum) + ext,
		SHA256:      hex.EncodeToString(sum),
		Bytes:       size,
		ContentType: contentType,
	}
	if there, err := s.holds(ctx, a); there || err != nil {
		return a, err
	}
	err = s.retry.do(ctx, transferTimeout(size), func(ctx context.Context) error {
		if _, err := content.Seek(0, io.SeekStart); err != nil {
			return permanent(err)
		}
		return s.creator.create(ctx, a.Key, verify(content, sum, size), contentType)
	})
	if errors.Is(err, errExists) {
		_, err = s.holds(ctx, a)
		return a, err
	}
	if err != nil {
		return gang.Artifact{}, s.failed("write", a.Key, err)
	}
	return a, nil
}

// holds reports whether the artifact is in the store. One of another length
// under its name is an error that wraps ErrDamaged.
func (s *Store) holds(ctx context.Context, a gang.Artifact) (bool, error) {
	o, err := s.Stat(ctx, a.Key)
	switch {
	case errors.Is(err, ErrNotFound):
		return false, nil
	case err != nil:
		return false, err
	case o.Bytes != a.Bytes:
		return false, fmt.Errorf("%w: %s in %s has %d bytes, its content has %d: remove it and store it again", ErrDamaged, a.Key, s.url, o.Bytes, a.Bytes)
	}
	return true, nil
}

// Fetch copies an artifact to a writer and checks that its length and SHA-256
// are what a says; the error wraps ErrDamaged if they are not, ErrNotFound if
// the object is gone. What was written before an error is to be discarded.
func (s *Store) Fetch(ctx context.Context, a gang.Artifact, to io.Writer) error {
	sum, err := hex.DecodeString(a.SHA256)
	if err != nil || len(sum) != sha256.Size {
		return fmt.Errorf("fetch %s: its record has %q for a SHA-256", a.Key, a.SHA256)
	}
	ctx, cancel := context.WithTimeout(ctx, transferTimeout(a.Bytes))
	defer cancel()
	r, err := s.Open(ctx, a.Key)
	if err != nil {
		return err
	}
	defer r.Close()
	if _, err := io.Copy(to, verify(r, sum, a.Bytes)); err != nil {
		return s.failed("fetch", a.Key, err)
	}
	return nil
}

func transferTimeout(size int64) time.Duration {
	return requestTimeout + time.Duration(size/slowestBytesPerSecond)*time.Second
}

func digest(content io.ReadSeeker) (sum []byte, size int64, err error) {
	if _, err := content.Seek(0, io.SeekStart); err != nil {
		return nil, 0, err
	}
	h := sha256.New()
	size, err = io.Copy(h, content)
	return h.Sum(nil), size, err
}

// verifier reads on from r, and ends with an error that wraps ErrDamaged
// instead of io.EOF where it was not the content that it should be.
type verifier struct {
	r    io.Reader
	hash hash.Hash
	sum  []byte
	left int64
}

func verify(r io.Reader, sum []byte, size int64) *verifier {
	return &verifier{r: r, hash: sha256.New(), sum: sum, left: size}
}

func (v *verifier) Read(p []byte) (int, error) {
	n, err := v.r.Read(p)
	v.hash.Write(p[:n])
	v.left -= int64(n)
	switch {
	case v.left < 0:
		return 0, fmt.Errorf("%w: it is longer than it should be", ErrDamaged)
	case err == io.EOF && v.left > 0:
		return 0, fmt.Errorf("%w: it is %d bytes shorter than it should be", ErrDamaged, v.left)
	case err == io.EOF && !bytes.Equal(v.hash.Sum(nil), v.sum):
		return 0, fmt.Errorf("%w: its SHA-256 is %x and should be %x", ErrDamaged, v.hash.Sum(nil), v.sum)
	}
	return n, err
}
