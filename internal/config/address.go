package config

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/zclconf/go-cty/cty"
)

// maxLevels bounds a topology.
const maxLevels = 8

var wordRule = regexp.MustCompile(`^[a-z][a-z0-9_-]{0,39}$`)

func wordProblem(s string) string {
	return fmt.Sprintf("%q is no name: use a letter of a-z, and then up to 39 of a-z, 0-9, '_' and '-'.", s)
}

// checked takes a string of which check finds nothing wrong.
func checked(into *string, check func(string) error) func(cty.Value) error {
	return func(v cty.Value) error {
		var s string
		if err := text(&s)(v); err != nil {
			return err
		}
		if err := check(s); err != nil {
			return err
		}
		*into = s
		return nil
	}
}

// optional leaves the default where the string is empty.
func optional(set func(cty.Value) error) func(cty.Value) error {
	return func(v cty.Value) error {
		var s string
		if text(&s)(v) == nil && s == "" {
			return nil
		}
		return set(v)
	}
}

func hostPort(into *string) func(cty.Value) error {
	return checked(into, func(s string) error {
		host, port, err := net.SplitHostPort(s)
		if err == nil {
			_, err = strconv.ParseUint(port, 10, 16)
		}
		if err != nil || strings.ContainsAny(host, "/ ") {
			return fmt.Errorf(`is %q, and must be HOST:PORT, such as "127.0.0.1:4750"`, s)
		}
		return nil
	})
}

// unspecified reports whether an address listens everywhere, and so cannot be
// connected to.
func unspecified(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "" || ip != nil && ip.IsUnspecified()
}

// server takes a URL, or HOST:PORT for one with http.
func server(into *string) func(cty.Value) error {
	return func(v cty.Value) error {
		var s string
		if err := text(&s)(v); err != nil {
			return err
		}
		full := s
		if !strings.Contains(s, "://") {
			full = "http://" + s
		}
		u, err := url.Parse(full)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return fmt.Errorf(`is %q, and must be a URL, such as "http://127.0.0.1:8500"`, s)
		}
		*into = strings.TrimSuffix(full, "/")
		return nil
	}
}

func blobURL(into *string) func(cty.Value) error {
	return checked(into, func(s string) error {
		u, err := url.Parse(s)
		if err != nil || u.Scheme == "" {
			return fmt.Errorf(`is %q, and must be a URL, such as "file:///var/lib/gangd/blobs" or "s3://BUCKET?region=REGION"`, s)
		}
		return nil
	})
}

// keyPrefix takes a path in Consul's key space and keeps it without slashes
// at its ends.
func keyPrefix(into *string) func(cty.Value) error {
	return func(v cty.Value) error {
		var s string
		if err := text(&s)(v); err != nil {
			return err
		}
		trimmed := strings.Trim(s, "/")
		if trimmed == "" || strings.Contains(trimmed, "//") {
			return fmt.Errorf(`is %q, and must be a path in Consul's keys, such as "gangd"`, s)
		}
		*into = trimmed
		return nil
	}
}

func levels(into *[]string) func(cty.Value) error {
	return func(v cty.Value) error {
		var list []string
		if err := texts(&list)(v); err != nil {
			return err
		}
		if len(list) == 0 || len(list) > maxLevels {
			return fmt.Errorf("has %d entries, and must have 1 to %d", len(list), maxLevels)
		}
		for i, level := range list {
			switch {
			case !wordRule.MatchString(level):
				return errors.New("holds " + strings.TrimSuffix(wordProblem(level), "."))
			case level == "node":
				return errors.New(`holds "node", which is always the level below the last one`)
			case slices.Contains(list[:i], level):
				return fmt.Errorf("holds %q twice", level)
			}
		}
		*into = list
		return nil
	}
}

// maxTimeout is longer than any wait that an operator could mean.
const maxTimeout = 24 * time.Hour

func timeout(into *time.Duration) func(cty.Value) error {
	return func(v cty.Value) error {
		var d time.Duration
		if err := duration(&d)(v); err != nil {
			return err
		}
		if d < time.Second || d > maxTimeout {
			return fmt.Errorf("is %s, and must be between 1s and %s", d, maxTimeout)
		}
		*into = d
		return nil
	}
}

// escapeGlob makes a path match itself alone.
func escapeGlob(path string) string {
	return regexp.MustCompile(`[*?\[\\]`).ReplaceAllString(path, `\$0`)
}
