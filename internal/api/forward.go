package api

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/gangd/gangd/internal/gang"
)

// forwardedHeader marks a request that came through another agent. It is not
// forwarded again: two agents that each take the other for the leader would
// send it round in circles.
const forwardedHeader = "X-Gangd-Forwarded"

// leaderKey holds the leader's URL in the context of a request to forward.
type leaderKey struct{}

// onLeader serves here if this agent leads, else at the leader.
func (s *Server) onLeader(w http.ResponseWriter, r *http.Request, serve handlerFunc) {
	address, self := s.scheduler.Leader()
	if self {
		if err := serve(w, r); err != nil {
			s.fail(w, r, err)
		}
		return
	}
	target, err := leaderURL(address)
	switch {
	case address == "":
		s.fail(w, r, fmt.Errorf("%w, and knows of none that does: try again in a moment", gang.ErrNotLeading))
	case r.Header.Get(forwardedHeader) != "":
		s.fail(w, r, fmt.Errorf("%w, though another agent took it for the leader: try again in a moment", gang.ErrNotLeading))
	case err != nil:
		s.fail(w, r, fmt.Errorf("forward to the leader at %q: %w", address, err))
	default:
		s.proxy.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), leaderKey{}, target)))
	}
}

func leaderURL(address string) (*url.URL, error) {
	if !strings.Contains(address, "://") {
		address = "http://" + address
	}
	return url.Parse(address)
}

func (s *Server) newProxy() http.Handler {
	return &httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(p.In.Context().Value(leaderKey{}).(*url.URL))
			p.SetXForwarded()
			p.Out.Header.Set(forwardedHeader, "1")
		},
		Transport: &http.Transport{
			DialContext:           (&net.Dialer{Timeout: 2 * time.Second}).DialContext,
			ResponseHeaderTimeout: requestTimeout,
			MaxIdleConnsPerHost:   64,
			MaxConnsPerHost:       MaxConnections,
			IdleConnTimeout:       idleTimeout,
			DisableCompression:    true,
		},
		FlushInterval: -1, // events are to arrive when they happen
		ErrorLog:      s.log.StandardLogger(&hclog.StandardLoggerOptions{ForceLevel: hclog.Debug}),
		ModifyResponse: func(r *http.Response) error {
			r.Header.Del(requestIDHeader) // it is set on the way in
			r.Header.Del("X-Content-Type-Options")
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) { s.fail(w, r, forwardProblem(r, err)) },
	}
}

// forwardProblem tells a leader that was not reached, where a retry is safe,
// from one that did not answer.
func forwardProblem(r *http.Request, err error) error {
	if p := problemOf(err); p.code != CodeInternal || errors.Is(err, context.Canceled) {
		return err
	}
	leader := r.Context().Value(leaderKey{}).(*url.URL).Host
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		return &problem{status: http.StatusServiceUnavailable, code: CodeNotLeading, cause: err, retryAfter: 1,
			message: fmt.Sprintf("the leader at %s cannot be reached: try again in a moment", leader)}
	}
	return &problem{status: http.StatusBadGateway, code: CodeNotLeading, cause: err, retryAfter: 1,
		message: fmt.Sprintf("the leader at %s did not answer; what was asked may have been done", leader)}
}
