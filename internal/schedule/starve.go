package schedule

import "slices"

// MayStarve names the tiers whose gangs may wait for ever: others are above them,
// and they have no min_share.
func MayStarve(tiers []Tier) []string {
	var out []string
	for _, t := range tiers {
		if t.MinShare == 0 && slices.ContainsFunc(tiers, func(o Tier) bool { return o.Priority > t.Priority }) {
			out = append(out, t.Name)
		}
	}
	return out
}
