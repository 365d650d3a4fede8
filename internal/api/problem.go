package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/gangd/gangd/internal/config"
	"github.com/gangd/gangd/internal/gang"
)

// ErrorBody is the body of every answer that is not a success.
type ErrorBody struct {
	Error ErrorDetail `json:"error"`
}

// ErrorDetail says what is wrong, in the shape that OpenAI's clients read.
type ErrorDetail struct {
	// Message is for people; it may have several lines.
	Message string `json:"message"`
	// Type is invalid_request_error or server_error.
	Type string `json:"type"`
	// Param names the field or parameter at fault.
	Param *string `json:"param"`
	Code  string  `json:"code"`
	// Gang is the name of the one that is refused, of those in the body.
	Gang string `json:"gang,omitempty"`
}

// The codes of errors.
const (
	CodeUnreadable = "unreadable"
	CodeRefused    = "refused"
	CodeNotFound   = "not_found"
	CodeEnded      = "already_ended"
	CodeNotWaiting = "not_waiting"
	CodeNoArtifact = "no_artifact"
	CodeOverloaded = "overloaded"
	CodeNotNow     = "not_now"
	CodeNotLeading = "not_leading"
	CodeTimeout    = "timeout"
	CodeInternal   = "internal"
)

// problem is an error that knows its answer.
type problem struct {
	status  int
	code    string
	param   string
	gang    string
	message string
	// retryAfter is in seconds; 0 where a retry is of no use.
	retryAfter int
	cause      error
}

func (p *problem) Error() string { return p.message }
func (p *problem) Unwrap() error { return p.cause }

func invalid(param, format string, args ...any) *problem {
	return &problem{status: http.StatusBadRequest, code: "invalid_parameter", param: param, message: fmt.Sprintf(format, args...)}
}

func internalProblem() *problem {
	return &problem{status: http.StatusInternalServerError, code: CodeInternal, message: "gangd failed to answer; its log says why"}
}

// problemOf decides the answer to an error.
func problemOf(err error) *problem {
	var (
		known      *problem
		unreadable *config.UnreadableError
		refused    *gang.RefusedError
		tooLarge   *http.MaxBytesError
	)
	switch {
	case errors.As(err, &known):
		return known
	case errors.As(err, &unreadable):
		return &problem{status: http.StatusBadRequest, code: CodeUnreadable, param: unreadable.Field(), message: err.Error()}
	case errors.As(err, &refused):
		return &problem{status: http.StatusUnprocessableEntity, code: CodeRefused, param: refused.Field, gang: refused.Gang, message: err.Error()}
	case errors.As(err, &tooLarge):
		return &problem{status: http.StatusRequestEntityTooLarge, code: "too_large",
			message: fmt.Sprintf("the body is larger than %d bytes: put large input into the blob store, or submit in parts", tooLarge.Limit)}
	case errors.Is(err, gang.ErrNoWindow):
		return &problem{status: http.StatusNotFound, code: CodeNotFound, param: "name", message: err.Error()}
	case errors.Is(err, gang.ErrNotFound):
		return &problem{status: http.StatusNotFound, code: CodeNotFound, param: "id", message: err.Error()}
	case errors.Is(err, gang.ErrNotWaiting):
		return &problem{status: http.StatusConflict, code: CodeNotWaiting, param: "id", message: err.Error()}
	case errors.Is(err, gang.ErrOverloaded):
		return &problem{status: http.StatusTooManyRequests, code: CodeOverloaded, message: err.Error(), retryAfter: 1}
	case errors.Is(err, gang.ErrNotNow):
		return &problem{status: http.StatusServiceUnavailable, code: CodeNotNow, message: err.Error(), retryAfter: 1}
	case errors.Is(err, gang.ErrOutcomeUnknown):
		return &problem{status: http.StatusBadGateway, code: CodeNotLeading, message: err.Error(), retryAfter: 1}
	case errors.Is(err, gang.ErrNotLeading):
		return &problem{status: http.StatusServiceUnavailable, code: CodeNotLeading, message: err.Error(), retryAfter: 1}
	case errors.Is(err, context.DeadlineExceeded):
		return &problem{status: http.StatusGatewayTimeout, code: CodeTimeout, cause: err, retryAfter: 1,
			message: fmt.Sprintf("gangd did not finish within %s; what was asked may still be done", requestTimeout)}
	}
	p := internalProblem()
	p.cause = err
	return p
}

// fail answers with an error, and logs what is the server's fault.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	if errors.Is(err, context.Canceled) && r.Context().Err() != nil {
		return // the client has left
	}
	p := problemOf(err)
	if p.status >= http.StatusInternalServerError && p.cause != nil {
		s.log.Error("request failed", "method", r.Method, "path", r.URL.Path, "status", p.status,
			"id", r.Header.Get(requestIDHeader), "error", p.cause)
	}
	writeProblem(w, p)
}

func writeProblem(w http.ResponseWriter, p *problem) {
	detail := ErrorDetail{Message: p.message, Type: "invalid_request_error", Code: p.code, Gang: p.gang}
	if p.status >= http.StatusInternalServerError {
		detail.Type = "server_error"
	}
	if p.param != "" {
		detail.Param = &p.param
	}
	if p.retryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(p.retryAfter))
	} else {
		w.Header().Set("X-Should-Retry", "false")
	}
	w.Header().Set("Cache-Control", "no-store")
	writeJSON(w, p.status, ErrorBody{Error: detail})
}

// writeJSON sends a value. That the client has left by then is nobody's fault.
func writeJSON(w http.ResponseWriter, status int, value any) {
	body, err := encode(value)
	if err != nil {
		status, body = http.StatusInternalServerError, []byte(`{"error":{"message":"the answer cannot be encoded","type":"server_error","param":null,"code":"internal"}}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

func encode(value any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(value)
	return b.Bytes(), err
}

func methodNotAllowed(methods []string) handlerFunc {
	allow := strings.Join(methods, ", ")
	return func(w http.ResponseWriter, r *http.Request) error {
		w.Header().Set("Allow", allow)
		return &problem{status: http.StatusMethodNotAllowed, code: "method_not_allowed",
			message: fmt.Sprintf("%s is not for %s: use %s", r.Method, r.URL.Path, allow)}
	}
}

func noSuchPath(_ http.ResponseWriter, r *http.Request) error {
	return &problem{status: http.StatusNotFound, code: CodeNotFound, message: fmt.Sprintf("there is nothing at %s", r.URL.Path)}
}
