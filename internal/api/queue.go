package api

import (
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/gangd/gangd/internal/gang"
)

// Reorder is the body of a request to move a gang among those of its tenant and
// tier that wait: before another one, or to their begin or end.
type Reorder struct {
	Before gang.ID `json:"before,omitempty"`
	// To is ToFirst or ToLast; empty where Before says.
	To string `json:"to,omitempty"`
}

// Where a gang can be moved to, if not before another one.
const (
	ToFirst = "first"
	ToLast  = "last"
)

func (s *Server) explain(w http.ResponseWriter, r *http.Request) error {
	id, err := gangID(r)
	if err != nil {
		return err
	}
	out, err := s.scheduler.Outlook(r.Context(), id)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, out)
	return nil
}

func (s *Server) hold(w http.ResponseWriter, r *http.Request) error    { return s.setHeld(w, r, true) }
func (s *Server) release(w http.ResponseWriter, r *http.Request) error { return s.setHeld(w, r, false) }

func (s *Server) setHeld(w http.ResponseWriter, r *http.Request, held bool) error {
	id, err := gangID(r)
	if err != nil {
		return err
	}
	g, err := s.scheduler.Hold(r.Context(), id, held)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, g)
	return nil
}

func (s *Server) reorder(w http.ResponseWriter, r *http.Request) error {
	id, err := gangID(r)
	if err != nil {
		return err
	}
	var body Reorder
	in := json.NewDecoder(r.Body)
	in.DisallowUnknownFields()
	if err := in.Decode(&body); err != nil {
		return &problem{status: http.StatusBadRequest, code: CodeUnreadable, cause: asBadRequest(err),
			message: fmt.Sprintf(`the body is to be {"before": "ID"}, {"to": "first"} or {"to": "last"}: %v`, err)}
	}
	switch {
	case (body.Before == "") == (body.To == ""), body.To != "" && body.To != ToFirst && body.To != ToLast:
		return invalid("to", `say one of {"before": "ID"}, {"to": "first"} and {"to": "last"}`)
	case body.Before != "":
		if body.Before, err = gang.ParseID(string(body.Before)); err != nil {
			return invalid("before", "%v", err)
		}
	}
	g, err := s.scheduler.Reorder(r.Context(), id, body.Before, body.To == ToLast)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, g)
	return nil
}

func (s *Server) shares(w http.ResponseWriter, r *http.Request) error {
	out, err := s.scheduler.Shares(r.Context())
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, out)
	return nil
}
