package api

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strconv"
	"strings"

	"github.com/gangd/gangd/internal/gang"
)

func (s *Server) artifact(w http.ResponseWriter, r *http.Request) error {
	return s.object(w, r, "artifact", func(g gang.Status) *gang.Artifact { return g.Artifact })
}

func (s *Server) thumbnail(w http.ResponseWriter, r *http.Request) error {
	return s.object(w, r, "thumbnail", func(g gang.Status) *gang.Artifact { return g.Thumbnail })
}

// object streams an object that a gang's record names. The record knows its
// checksum, which never changes, and so it serves as the entity tag.
func (s *Server) object(w http.ResponseWriter, r *http.Request, what string, of func(gang.Status) *gang.Artifact) error {
	g, err := s.gang(r)
	if err != nil {
		return err
	}
	a := of(g)
	if a == nil {
		return &problem{status: http.StatusNotFound, code: CodeNoArtifact, param: "id",
			message: fmt.Sprintf("%s is %s and has no %s", g.ID, g.State, what)}
	}
	tag := `"` + a.SHA256 + `"`
	w.Header().Set("ETag", tag)
	w.Header().Set("Cache-Control", "private, max-age=31536000, immutable")
	if matches(r.Header.Get("If-None-Match"), tag) {
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	body, size, contentType, err := s.blobs.Open(r.Context(), a.Key)
	if err != nil {
		w.Header().Del("ETag")
		return blobProblem(g.ID, what, a.Key, err)
	}
	defer body.Close()
	if a.ContentType != "" {
		contentType = a.ContentType
	}
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Content-Length", strconv.FormatInt(size, 10))
	w.Header().Set("Content-Disposition", mime.FormatMediaType("inline", map[string]string{"filename": string(g.ID) + path.Ext(a.Key)}))
	if r.Method == http.MethodHead {
		return nil
	}
	if _, err := io.Copy(w, body); err != nil {
		s.log.Warn("an object was not sent whole", "gang", g.ID, "key", a.Key, "error", err)
		panic(http.ErrAbortHandler) // the only way to tell a client that has its header
	}
	return nil
}

func blobProblem(id gang.ID, what, key string, err error) *problem {
	if errors.Is(err, fs.ErrNotExist) {
		return &problem{status: http.StatusNotFound, code: CodeNoArtifact, param: "id",
			message: fmt.Sprintf("the %s of %s is no longer in the blob store (key %s)", what, id, key)}
	}
	return &problem{status: http.StatusBadGateway, code: "blob_store", cause: err, retryAfter: 1,
		message: fmt.Sprintf("the blob store did not give the %s of %s (key %s)", what, id, key)}
}

func matches(ifNoneMatch, tag string) bool {
	for _, t := range strings.Split(ifNoneMatch, ",") {
		if t = strings.TrimSpace(t); t == "*" || strings.TrimPrefix(t, "W/") == tag {
			return true
		}
	}
	return false
}
