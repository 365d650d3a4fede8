package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/gangd/gangd/internal/api"
	"github.com/gangd/gangd/internal/gang"
)

const (
	defaultAddress = "http://127.0.0.1:4750"
	// maxAnswerBytes holds the largest answer that the API gives: 10,000 gangs,
	// or 2,000 nodes, at a few KiB each.
	maxAnswerBytes = 64 << 20
	maxErrorBytes  = 1 << 20
)

// errUnreadable is wrapped where the agent could not read what it was sent.
var errUnreadable = errors.New("the input cannot be read")

// agentError is an agent's answer that is not a success.
type agentError struct {
	status     int
	detail     api.ErrorDetail
	retryAfter time.Duration
}

func (e *agentError) Error() string { return clean(e.detail.Message) }

func (e *agentError) Unwrap() error {
	switch e.detail.Code {
	case api.CodeUnreadable:
		return errUnreadable
	case api.CodeRefused:
		return e.refusal()
	}
	return nil
}

// refusal is what the agent refused, as it was before it became an answer.
func (e *agentError) refusal() error {
	refused := &gang.RefusedError{Gang: e.detail.Gang, Reason: e.Error()}
	if refused.Gang != "" {
		refused.Reason = strings.TrimPrefix(refused.Reason, fmt.Sprintf("gang %q: ", refused.Gang))
	}
	if p := e.detail.Param; p != nil {
		refused.Field = *p
		refused.Reason = strings.TrimPrefix(refused.Reason, refused.Field+": ")
	}
	return refused
}

// client speaks to an agent.
type client struct {
	address  string
	token    string
	patience time.Duration
	quiet    time.Duration // maxQuiet, but in tests
	http     *http.Client
}

// addressFlag declares -address; the client is made once flags are parsed.
func (t *terminal) addressFlag(f *flag.FlagSet) func() (*client, error) {
	given := f.String("address", "", "The `URL` of a gangd agent. Default: GANGD_ADDR, or "+defaultAddress+".")
	return func() (*client, error) {
		address := *given
		if address == "" {
			address = t.getenv("GANGD_ADDR")
		}
		if address == "" {
			address = defaultAddress
		}
		if !strings.Contains(address, "://") {
			address = "http://" + address
		}
		u, err := url.Parse(address)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return nil, fmt.Errorf("%q is no address of an agent: give one like %s with -address or GANGD_ADDR", address, defaultAddress)
		}
		transport := &http.Transport{
			Proxy:                 http.ProxyFromEnvironment,
			DialContext:           (&net.Dialer{Timeout: 5 * time.Second}).DialContext,
			ResponseHeaderTimeout: time.Minute,
		}
		return &client{
			address: strings.TrimSuffix(u.String(), "/"), token: t.getenv("GANGD_TOKEN"),
			patience: t.patience, quiet: maxQuiet, http: &http.Client{Transport: transport},
		}, nil
	}
}

// call sends a request and decodes the answer. An agent that says it cannot
// answer yet is asked again, for as long as the client has patience.
func (c *client) call(ctx context.Context, method, path, contentType string, body []byte, into any) error {
	end := time.Now().Add(c.patience)
	for {
		err := c.once(ctx, method, path, contentType, body, into)
		var answer *agentError
		if !errors.As(err, &answer) || answer.retryAfter == 0 || time.Now().Add(answer.retryAfter).After(end) {
			return err
		}
		if answer.status != http.StatusServiceUnavailable && answer.status != http.StatusTooManyRequests {
			return err // it may have been done
		}
		select {
		case <-time.After(answer.retryAfter):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (c *client) once(ctx context.Context, method, path, contentType string, body []byte, into any) error {
	answer, err := c.open(ctx, method, path, contentType, body, "")
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswerBytes+1))
	if err != nil {
		return fmt.Errorf("read the answer of %s: %w", c.address, err)
	}
	if len(text) > maxAnswerBytes {
		return fmt.Errorf("the answer of %s to %s %s is larger than the %d bytes that are read", c.address, method, path, maxAnswerBytes)
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("read the answer of %s to %s %s: %w: is it a gangd agent?", c.address, method, path, err)
	}
	return nil
}

// open sends a request and returns an answer that is a success.
func (c *client) open(ctx context.Context, method, path, contentType string, body []byte, lastEvent string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, c.address+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if contentType != "" {
		r.Header.Set("Content-Type", contentType)
	}
	if c.token != "" {
		r.Header.Set("Authorization", "Bearer "+c.token)
	}
	if lastEvent != "" {
		r.Header.Set("Last-Event-ID", lastEvent)
	}
	r.Header.Set("User-Agent", "gangd/"+version)
	answer, err := c.http.Do(r)
	if err != nil {
		return nil, c.unreachable(ctx, err)
	}
	if answer.StatusCode >= 200 && answer.StatusCode < 300 {
		return answer, nil
	}
	defer answer.Body.Close()
	return nil, c.refusal(answer)
}

func (c *client) unreachable(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var sent *url.Error
	if errors.As(err, &sent) {
		err = sent.Err
	}
	return fmt.Errorf("cannot reach a gangd agent at %s: %w\nStart one with \"gangd agent\", or say where one is with -address or GANGD_ADDR", c.address, err)
}

func (c *client) refusal(answer *http.Response) error {
	var body api.ErrorBody
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxErrorBytes))
	if err != nil || json.Unmarshal(text, &body) != nil || body.Error.Message == "" {
		return fmt.Errorf("%s answered %s, and not as a gangd agent does", c.address, answer.Status)
	}
	seconds, _ := strconv.Atoi(answer.Header.Get("Retry-After")) // absent: 0
	return &agentError{status: answer.StatusCode, detail: body.Error, retryAfter: time.Duration(min(max(seconds, 0), 60)) * time.Second}
}

// maxCandidates bounds how many gangs an ambiguous prefix is told with.
const maxCandidates = 20

// ambiguousError is a prefix that fits several.
type ambiguousError struct {
	what, prefix string
	total        int
	candidates   []string
}

func (e *ambiguousError) Error() string {
	more := ""
	if n := e.total - len(e.candidates); n > 0 {
		more = fmt.Sprintf("\n  and %d more", n)
	}
	return fmt.Sprintf("%q fits %d %s:\n  %s%s", e.prefix, e.total, e.what, strings.Join(e.candidates, "\n  "), more)
}

// resolve finds the gang whose ID is, or begins with, prefix; of several, the
// only one that has not ended.
func (c *client) resolve(ctx context.Context, prefix string) (gang.ID, error) {
	var list api.Gangs
	query := url.Values{"prefix": {prefix}, "limit": {strconv.Itoa(maxCandidates)}}
	if err := c.call(ctx, "GET", "/v1/gangs?"+query.Encode(), "", nil, &list); err != nil {
		return "", err
	}
	ambiguous := &ambiguousError{what: "gangs", prefix: prefix, total: list.Total}
	var live []gang.ID // they come first in a list
	for _, g := range list.Gangs {
		if string(g.ID) == prefix {
			return g.ID, nil
		}
		if !g.State.Terminal() {
			live = append(live, g.ID)
		}
		ambiguous.candidates = append(ambiguous.candidates, clean(fmt.Sprintf("%s  %s", g.ID, g.State)))
	}
	switch {
	case len(list.Gangs) == 0:
		return "", fmt.Errorf("no gang has an ID that begins with %q", prefix)
	case len(list.Gangs) == 1:
		return list.Gangs[0].ID, nil
	case len(live) == 1:
		return live[0], nil
	}
	return "", ambiguous
}
