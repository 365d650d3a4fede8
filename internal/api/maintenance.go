package api

import (
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/gangd/gangd/internal/gang"
)

// Maintenance is the answer of /v1/maintenance.
type Maintenance struct {
	Windows []gang.WindowStatus `json:"windows"`
}

func (s *Server) windows(w http.ResponseWriter, r *http.Request) error {
	windows, err := s.scheduler.Windows(r.Context())
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, Maintenance{windows})
	return nil
}

func (s *Server) planWindow(w http.ResponseWriter, r *http.Request) error {
	var body gang.Window
	in := json.NewDecoder(r.Body)
	in.DisallowUnknownFields()
	if err := in.Decode(&body); err != nil {
		return &problem{status: http.StatusBadRequest, code: CodeUnreadable, cause: asBadRequest(err),
			message: fmt.Sprintf(`the body is to be {"from_ms": .., "until_ms": .., "nodes": [..]}, or with "level" and "domain": %v`, err)}
	}
	name := r.PathValue("name")
	if body.Name != "" && body.Name != name {
		return invalid("name", "%q is not the window's name in the path", body.Name)
	}
	body.Name = name
	if err := s.scheduler.PlanWindow(r.Context(), body); err != nil {
		return err
	}
	return s.windows(w, r)
}

func (s *Server) callWindowOff(w http.ResponseWriter, r *http.Request) error {
	if err := s.scheduler.CallWindowOff(r.Context(), r.PathValue("name")); err != nil {
		return err
	}
	return s.windows(w, r)
}
