package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/gangd/gangd/internal/cluster"
	"github.com/gangd/gangd/internal/config"
	"github.com/gangd/gangd/internal/gang"
)

// DefaultListLimit is how many gangs a list holds where ?limit= says nothing;
// MaxListLimit is the most that it may say: so many the leader's loop, which
// makes the list, can spare the time for.
const (
	DefaultListLimit = 1000
	MaxListLimit     = 10_000
)

// Gangs is the answer to a submission, and a list of gangs.
type Gangs struct {
	Gangs []gang.Status `json:"gangs"`
	// Total counts those that matched. Where there are more of them than Gangs
	// has, the list was cut at the limit.
	Total int `json:"total"`
}

// Cluster is the answer of /v1/cluster.
type Cluster struct {
	// Levels name the domains of a node, in their order.
	Levels []string             `json:"levels"`
	Nodes  []cluster.NodeStatus `json:"nodes"`
}

func gangID(r *http.Request) (gang.ID, error) {
	id, err := gang.ParseID(r.PathValue("id"))
	if err != nil {
		return "", invalid("id", "%v", err)
	}
	return id, nil
}

func (s *Server) submit(w http.ResponseWriter, r *http.Request) error {
	specs, err := s.readGangs(r)
	if err != nil {
		return err
	}
	accepted, err := s.scheduler.Submit(r.Context(), specs)
	if err != nil {
		return err
	}
	if len(accepted) == 1 {
		w.Header().Set("Location", "/v1/gangs/"+string(accepted[0].ID))
	}
	writeJSON(w, http.StatusCreated, Gangs{Gangs: accepted, Total: len(accepted)})
	return nil
}

func (s *Server) readGangs(r *http.Request) ([]gang.Spec, error) {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil {
		kind = ""
	}
	var parse func(string, []byte) ([]gang.Spec, error)
	switch {
	case kind == "application/json", strings.HasSuffix(kind, "+json"):
		parse = config.ParseGangsJSON
	case kind == "application/hcl", kind == "text/plain", kind == "text/x-hcl":
		parse = config.ParseGangs
	default:
		return nil, &problem{status: http.StatusUnsupportedMediaType, code: "unsupported_media_type", param: "Content-Type",
			message: fmt.Sprintf("Content-Type %q is not understood: send application/json or application/hcl", r.Header.Get("Content-Type"))}
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, fmt.Errorf("read the body: %w", asBadRequest(err))
	}
	select {
	case s.parsing <- struct{}{}:
		defer func() { <-s.parsing }()
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	return parse("request", body)
}

func (s *Server) list(w http.ResponseWriter, r *http.Request) error {
	want, err := selection(r.URL.Query())
	if err != nil {
		return err
	}
	gangs, total, err := s.scheduler.Gangs(r.Context(), want)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, Gangs{Gangs: gangs, Total: total})
	return nil
}

func selection(q url.Values) (gang.Selection, error) {
	for _, name := range slices.Sorted(maps.Keys(q)) {
		if !slices.Contains([]string{"state", "tenant", "prefix", "limit"}, name) {
			return gang.Selection{}, invalid(name, "%q is no filter: use state, tenant, prefix or limit", name)
		}
	}
	want := gang.Selection{State: gang.State(q.Get("state")), Tenant: q.Get("tenant"), Prefix: q.Get("prefix"), Limit: DefaultListLimit}
	var states []string
	for _, row := range gang.Transitions() {
		states = append(states, string(row.From))
	}
	if want.State != "" && !slices.Contains(states, string(want.State)) {
		return gang.Selection{}, invalid("state", "%q is no state of a gang: there are %s", want.State, strings.Join(states, ", "))
	}
	if text := q.Get("limit"); text != "" {
		limit, err := strconv.Atoi(text)
		if err != nil || limit < 1 || limit > MaxListLimit {
			return gang.Selection{}, invalid("limit", "%q is no number between 1 and %d", text, MaxListLimit)
		}
		want.Limit = limit
	}
	return want, nil
}

func (s *Server) get(w http.ResponseWriter, r *http.Request) error {
	g, err := s.gang(r)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, g)
	return nil
}

// gang returns the one that the path names.
func (s *Server) gang(r *http.Request) (gang.Status, error) {
	id, err := gangID(r)
	if err != nil {
		return gang.Status{}, err
	}
	return s.scheduler.Gang(r.Context(), id)
}

// cancel answers 202 when the order is given now, 200 when it was given
// before, and 409 when the gang has ended otherwise.
func (s *Server) cancel(w http.ResponseWriter, r *http.Request) error {
	g, err := s.gang(r)
	if err != nil {
		return err
	}
	status := http.StatusOK
	if !cancelOrdered(g) && !g.State.Terminal() {
		status = http.StatusAccepted
		if g, err = s.scheduler.Cancel(r.Context(), g.ID); err != nil {
			return err
		}
	}
	if g.State.Terminal() && g.State != gang.Cancelled {
		return &problem{status: http.StatusConflict, code: CodeEnded, param: "id", message: fmt.Sprintf("%s has %s already", g.ID, g.State)}
	}
	writeJSON(w, status, g)
	return nil
}

func cancelOrdered(g gang.Status) bool {
	return g.State == gang.Cancelled || g.State == gang.Stopping && g.Target == gang.Cancelled
}

func (s *Server) cluster(w http.ResponseWriter, r *http.Request) error {
	nodes, err := s.scheduler.Nodes(r.Context())
	if err != nil {
		return err
	}
	out := Cluster{Levels: s.levels, Nodes: []cluster.NodeStatus{}}
	wanted := r.URL.Query()["node"]
	for _, n := range nodes {
		if len(wanted) == 0 || slices.Contains(wanted, n.ID) || slices.Contains(wanted, n.Name) {
			out.Nodes = append(out.Nodes, n)
		}
	}
	writeJSON(w, http.StatusOK, out)
	return nil
}

func (s *Server) healthz(w http.ResponseWriter, _ *http.Request) error {
	writeJSON(w, http.StatusOK, map[string]string{"status": "ok"})
	return nil
}

func (s *Server) readyz(w http.ResponseWriter, _ *http.Request) error {
	if err := s.scheduler.Ready(); err != nil {
		return &problem{status: http.StatusServiceUnavailable, code: "not_ready", message: err.Error(), retryAfter: 1}
	}
	leader, self := s.scheduler.Leader()
	writeJSON(w, http.StatusOK, map[string]any{"status": "ready", "leading": self, "leader": leader})
	return nil
}

// asBadRequest makes a fault of the sender out of a body that ends early, and
// leaves what has an answer of its own.
func asBadRequest(err error) error {
	if p := problemOf(err); p.code != CodeInternal || errors.Is(err, context.Canceled) {
		return err
	}
	return &problem{status: http.StatusBadRequest, code: CodeUnreadable, message: "the body ended before it was complete", cause: err}
}
