package api

import (
	"crypto/rand"
	"encoding/hex"
	"net/http"
	"regexp"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gangd/gangd/internal/config"
)

const requestIDHeader = "X-Request-Id"

var requestIDRule = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// outermost gives each request its ID, its limits and its line in the log.
func (s *Server) outermost(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		id := r.Header.Get(requestIDHeader)
		if !requestIDRule.MatchString(id) {
			id = newRequestID()
			r.Header.Set(requestIDHeader, id)
		}
		out := &response{ResponseWriter: w, controller: http.NewResponseController(w)}
		out.Header().Set(requestIDHeader, id)
		out.Header().Set("X-Content-Type-Options", "nosniff")

		// Not every transport has deadlines; that of writing is left over from
		// the last request on the connection.
		_ = out.controller.SetReadDeadline(start.Add(bodyTimeout))
		_ = out.controller.SetWriteDeadline(start.Add(requestTimeout + writeTimeout))
		r.Body = http.MaxBytesReader(w, r.Body, config.MaxFileBytes)
		defer func() {
			if broken := recover(); broken != nil {
				s.recovered(out, r, broken)
			}
			s.log.Debug("request", "id", id, "method", r.Method, "path", r.URL.Path, "status", out.status,
				"bytes", out.written, "took", time.Since(start), "remote", r.RemoteAddr)
		}()
		next.ServeHTTP(out, r)
	})
}

// recovered answers for a handler that panicked, and keeps the process alive
// for everyone else. http.ErrAbortHandler is the proxy's way to cut a response
// off, and stays so.
func (s *Server) recovered(out *response, r *http.Request, broken any) {
	if broken == http.ErrAbortHandler {
		panic(broken)
	}
	s.log.Error("a request made the server panic", "method", r.Method, "path", r.URL.Path, "panic", broken, "stack", string(debug.Stack()))
	if out.status == 0 {
		writeProblem(out, internalProblem())
		return
	}
	panic(http.ErrAbortHandler)
}

func newRequestID() string {
	var b [12]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// response notes what is sent, and gives each write its own deadline.
type response struct {
	http.ResponseWriter
	controller *http.ResponseController
	status     int
	written    int64
}

func (w *response) WriteHeader(status int) {
	if w.status == 0 || w.status < 200 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *response) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	_ = w.controller.SetWriteDeadline(time.Now().Add(writeTimeout))
	n, err := w.ResponseWriter.Write(b)
	w.written += int64(n)
	return n, err
}

// Unwrap lets an http.ResponseController reach the connection.
func (w *response) Unwrap() http.ResponseWriter { return w.ResponseWriter }

type metrics struct {
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	streams  prometheus.Gauge
}

func newMetrics(registry prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "gangd_http_requests_total", Help: "Requests answered, by route and status.",
		}, []string{"method", "route", "status"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "gangd_http_request_seconds", Help: "Time to answer a request, by route; streams included.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 10, 60},
		}, []string{"method", "route"}),
		streams: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "gangd_http_event_streams", Help: "Clients that follow a gang.",
		}),
	}
	for _, c := range []prometheus.Collector{m.requests, m.seconds, m.streams} {
		if err := registry.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// measured counts by route, not by path: a path has too many values.
func (s *Server) measured(rt route, next http.HandlerFunc) http.Handler {
	method := rt.method
	if method == "" {
		method = "other"
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		defer func() {
			status := 0
			if out, ok := w.(*response); ok {
				status = out.status
			}
			s.metrics.requests.WithLabelValues(method, rt.path, strconv.Itoa(status)).Inc()
			s.metrics.seconds.WithLabelValues(method, rt.path).Observe(time.Since(start).Seconds())
		}()
		next(w, r)
	})
}
