package sim

import (
	"cmp"
	"container/heap"
	"time"
)

// agenda is what will happen, by time. At one moment runs come first: what
// ends as a node is lost has ended before. Then the order is that of the
// scenario's lines, and last that in which it was noted.
type agenda struct {
	entries entries
	noted   int
}

type entry struct {
	at    time.Duration
	line  int // 0 for runs
	noted int
	do    func()
	// of is the attempt whose plan this was part of; nil for the scenario's
	// lines.
	of   *attempt
	plan int
}

// void reports whether the attempt has another plan now.
func (e *entry) void() bool { return e.of != nil && e.of.plan != e.plan }

// note adds something that happens at a time.
func (a *agenda) note(at time.Duration, line int, do func()) {
	a.push(entry{at: at, line: line, do: do})
}

// foresee notes what an attempt comes to, in place of what was noted of it
// before.
func (a *agenda) foresee(of *attempt, at time.Duration, do func()) {
	of.plan++
	a.push(entry{at: at, do: do, of: of, plan: of.plan})
}

func (a *agenda) push(e entry) {
	a.noted++
	e.noted = a.noted
	heap.Push(&a.entries, e)
}

// next is when something is due.
func (a *agenda) next() (time.Duration, bool) {
	for len(a.entries) > 0 && a.entries[0].void() {
		heap.Pop(&a.entries)
	}
	if len(a.entries) == 0 {
		return 0, false
	}
	return a.entries[0].at, true
}

// pop takes out what comes first, if it is due.
func (a *agenda) pop(now time.Duration) (do func(), due bool) {
	if at, some := a.next(); !some || at > now {
		return nil, false
	}
	return heap.Pop(&a.entries).(entry).do, true
}

// entries is a heap.
type entries []entry

func (e entries) Len() int      { return len(e) }
func (e entries) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e entries) Less(i, j int) bool {
	a, b := e[i], e[j]
	return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.line, b.line), cmp.Compare(a.noted, b.noted)) < 0
}

// Push is part of heap.Interface.
func (e *entries) Push(x any) { *e = append(*e, x.(entry)) }

// Pop is part of heap.Interface.
func (e *entries) Pop() any {
	last := (*e)[len(*e)-1]
	(*e)[len(*e)-1] = entry{}
	*e = (*e)[:len(*e)-1]
	return last
}
