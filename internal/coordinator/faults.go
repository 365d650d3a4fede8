package coordinator

import "time"

const (
	// faultsFor is how long a GPU's fault counts.
	faultsFor = 24 * time.Hour
	// maxFaults bounds those that are kept: beyond it the oldest are forgotten.
	maxFaults = 1 << 16
)

// faultLog counts what befell GPUs within faultsFor, as far as this leader saw
// it: that they fell ill, or were of a member that was lost. Another leader
// begins anew.
type faultLog struct {
	told   []fault // oldest first
	counts map[string]int
}

type fault struct {
	uuid string
	at   time.Time
}

func (f *faultLog) add(uuid string, at time.Time) {
	if f.counts == nil {
		f.counts = make(map[string]int)
	}
	if len(f.told) == maxFaults {
		f.drop()
	}
	f.told = append(f.told, fault{uuid, at})
	f.counts[uuid]++
}

// of is how many a GPU had.
func (f *faultLog) of(uuid string) int { return f.counts[uuid] }

// forget drops those that no longer count, and returns their GPUs.
func (f *faultLog) forget(now time.Time) (uuids []string) {
	for len(f.told) > 0 && now.Sub(f.told[0].at) >= faultsFor {
		uuids = append(uuids, f.told[0].uuid)
		f.drop()
	}
	return uuids
}

func (f *faultLog) drop() {
	uuid := f.told[0].uuid
	f.told = f.told[1:]
	if f.counts[uuid]--; f.counts[uuid] == 0 {
		delete(f.counts, uuid)
	}
}
