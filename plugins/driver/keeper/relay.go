package keeper

import (
	"time"

	"github.com/gangd/gangd/internal/link/linkpb"
)

// stepInterval is how often gangd hears of one rank's steps at most.
const stepInterval = 100 * time.Millisecond

// relay passes reports on to gangd. Of steps that come faster than
// stepInterval only the newest are sent, but a rank's last one always is.
type relay struct {
	put   func(*linkpb.KeeperReport)
	ranks map[uint32]*rankSteps
}

type rankSteps struct {
	sent    time.Time
	pending *linkpb.KeeperReport
}

func newRelay(put func(*linkpb.KeeperReport)) *relay {
	return &relay{put: put, ranks: make(map[uint32]*rankSteps)}
}

// send passes a report on, now or when it is due.
func (r *relay) send(now time.Time, report *linkpb.KeeperReport) {
	step := report.GetStep()
	if step == nil {
		r.flush(now, true)
		r.put(report)
		return
	}
	rank := r.ranks[step.GetRank()]
	if rank == nil {
		rank = &rankSteps{}
		r.ranks[step.GetRank()] = rank
	}
	rank.pending = report
	r.flush(now, false)
}

// flush sends the steps that are due, or all.
func (r *relay) flush(now time.Time, all bool) {
	for _, rank := range r.ranks {
		if rank.pending != nil && (all || now.Sub(rank.sent) >= stepInterval) {
			r.put(rank.pending)
			rank.sent, rank.pending = now, nil
		}
	}
}

// due is when flush has something to send; zero for never.
func (r *relay) due() time.Time {
	var due time.Time
	for _, rank := range r.ranks {
		if at := rank.sent.Add(stepInterval); rank.pending != nil && (due.IsZero() || at.Before(due)) {
			due = at
		}
	}
	return due
}
