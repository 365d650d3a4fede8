package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/gangd/gangd/internal/gang"
)

// progressText draws a bar with what is known of the steps. Since is the time
// since the last step was heard of; it lets the estimate run down between
// two steps.
func progressText(p gang.Progress, since time.Duration, width int) string {
	share := 0.0
	if p.Steps > 0 {
		share = min(max(float64(p.Step)/float64(p.Steps), 0), 1)
	}
	full := int(share * float64(width))
	text := fmt.Sprintf("[%s%s] %3.0f%%", strings.Repeat("#", full), strings.Repeat(".", width-full), share*100)
	for _, part := range []string{stepText(&p), p.Stage, speedText(p), etaText(p, since)} {
		if part != "" {
			text += "  " + part
		}
	}
	return clean(text)
}

func speedText(p gang.Progress) string {
	switch {
	case p.StepMillis <= 0:
		return ""
	case p.StepMillis < 1000:
		return fmt.Sprintf("%.0f ms/step", p.StepMillis)
	}
	return fmt.Sprintf("%.1f s/step", p.StepMillis/1000)
}

func etaText(p gang.Progress, since time.Duration) string {
	left := p.Steps - p.Step
	if left <= 0 || p.StepMillis <= 0 {
		return ""
	}
	eta := time.Duration(float64(left)*p.StepMillis*float64(time.Millisecond)) - since
	return "ETA " + duration(eta)
}
