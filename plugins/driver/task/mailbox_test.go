package task

import (
	"bytes"
	"context"
	"strconv"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/gangd/gangd/internal/nomadplugin"
)

// TestEventsThatFoundNoRoomAreLogged: the newest reach Nomad, and how many did
// not is logged once.
func TestEventsThatFoundNoRoomAreLogged(t *testing.T) {
	var log bytes.Buffer
	m := newMailbox(hclog.New(&hclog.LoggerOptions{Output: &log}))
	for i := range maxMailbox + 3 {
		m.put(nomadplugin.TaskEvent{Message: strconv.Itoa(i)})
	}
	ctx, cancel := context.WithCancel(t.Context())
	var taken []string
	_ = m.deliver(ctx, func(e nomadplugin.TaskEvent) {
		if taken = append(taken, e.Message); len(taken) == maxMailbox {
			m.put(nomadplugin.TaskEvent{Message: "more"})
		}
		if e.Message == "more" {
			cancel()
		}
	})
	if len(taken) != maxMailbox+1 || taken[0] != "3" {
		t.Errorf("%d events reached Nomad, the first is %q", len(taken), taken[0])
	}
	if strings.Count(log.String(), "[WARN]") != 1 || !strings.Contains(log.String(), "dropped=3") {
		t.Errorf("logged: %s", log.String())
	}
}
