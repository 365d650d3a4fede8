package coordinator

import (
	"slices"
	"time"

	"github.com/gangd/gangd/internal/gang"
	"github.com/gangd/gangd/internal/schedule"
)

// account is what was charged to a tenant.
type account struct {
	rec     gang.Account
	touched bool
}

func (c *Core) account(tenant string) *account {
	a := c.accounts[tenant]
	if a == nil {
		a = &account{rec: gang.Account{Version: gang.SchemaVersion, Tenant: tenant}}
		c.accounts[tenant] = a
	}
	return a
}

// charge has the tenant of a lane pay for the time that it held its GPUs: once,
// since the lane's record says so in the same transaction.
func (c *Core) charge(l *lane) {
	if l.rec.Charged || l.rec.Held == 0 {
		return
	}
	if len(c.touchedGangs)+len(c.touchedAccounts)+len(c.touchedWindows)+len(c.touchedLanes) > gang.MaxBatch-3 {
		c.cut() // what is written for one lane must not be parted
	}
	l.rec.Charged = true
	c.touchLane(l)
	since := time.UnixMilli(l.rec.Held)
	a := c.account(l.rec.Tenant)
	a.rec.Charge(len(l.rec.GPUs), since, c.now, c.cfg.Rules.HalfLife)
	if !a.touched {
		a.touched = true
		c.touchedAccounts = append(c.touchedAccounts, a)
	}
	if g := c.gangs[l.rec.Gang]; g != nil && !g.gone {
		g.rec.GPUMillis += int64(len(l.rec.GPUs)) * max(0, c.now.Sub(since).Milliseconds())
		c.touch(g)
	}
}

// restoreLedger tells the engine what tenants have used: what was charged, and
// what those lanes have used by now that hold GPUs.
func (c *Core) restoreLedger() {
	half := c.cfg.Rules.HalfLife
	past := make(map[string]float64)
	for name, a := range c.accounts {
		past[name] = a.rec.PastAt(c.now, half)
	}
	for _, l := range c.lanesInOrder() {
		if l.rec.Held > 0 && !l.rec.Charged {
			past[l.rec.Tenant] += gang.Decayed(len(l.rec.GPUs), time.UnixMilli(l.rec.Held), c.now, half)
		}
	}
	var all schedule.Together
	for _, tenant := range sortedIDs(past) {
		all = append(all, schedule.Past{Tenant: tenant, GPUs: past[tenant]})
	}
	if err := c.decide(all); err != nil {
		c.fault("restore the ledger: %w", err)
	}
}

// adopt tells the engine of the attempts that hold GPUs.
func (c *Core) adopt() {
	runs := make(map[Run][]*lane)
	var order []Run
	for _, l := range c.lanesInOrder() {
		if l.freed {
			continue
		}
		r := l.laneRun()
		if runs[r] == nil {
			order = append(order, r)
		}
		runs[r] = append(runs[r], l)
	}
	for _, r := range order {
		ev, known := c.adoption(r, runs[r])
		if !known || c.decide(ev) != nil { // the records do not agree with each other
			for _, l := range runs[r] {
				c.occupy(l)
			}
		}
	}
}

// adoption is an attempt of a gang, with those of its lanes that hold GPUs.
func (c *Core) adoption(r Run, lanes []*lane) (schedule.Adopt, bool) {
	g := c.gangs[r.Gang]
	if g == nil {
		return schedule.Adopt{}, false
	}
	ev := schedule.Adopt{Gang: g.forEngine(), Began: c.now, Ending: true}
	ev.Gang.Attempt = r.Attempt
	if g.rec.Attempt == r.Attempt {
		ev.Placement, ev.Owed = slices.Clone(g.rec.Members), g.rec.Owed
		ev.Ending = g.rec.State != gang.Launching && g.rec.State != gang.Running
		ev.Began = time.UnixMilli(g.rec.Times.Decided)
		if g.rec.State == gang.Running {
			ev.Ready = time.UnixMilli(g.rec.Times.Started)
		}
	}
	for _, l := range lanes {
		for len(ev.Placement) <= l.rec.Member {
			ev.Placement = append(ev.Placement, gang.Member{})
		}
		ev.Placement[l.rec.Member] = gang.Member{Node: l.rec.Node, GPUs: l.rec.GPUs, Lane: l.rec.ID}
		ev.Held = append(ev.Held, l.rec.Member)
	}
	slices.Sort(ev.Held)
	return ev, true
}

// occupy has a lane's GPUs held, whatever it may be.
func (c *Core) occupy(l *lane) {
	held := schedule.Occupy{Seat: l.seat(), Place: gang.Member{Node: l.rec.Node, GPUs: l.rec.GPUs}}
	if g := c.gangs[l.rec.Gang]; g != nil {
		held.Need = g.spec.MemberNeed
	}
	if err := c.decide(held); err != nil {
		c.fault("restore lane %s: %w", l.rec.ID, err)
		c.free(l)
	}
}
