package schedule
import ("testing";"time";"fmt";"sort")
func TestTmp(t *testing.T) {
	s := newSite(t, 2000, 0, 1); s.fill(0.9); s.queue(10000)
	type rec struct{ d time.Duration; what string }
	var all []rec
	run := func(ev Event, kind string) {
		r0, st0, c0 := s.e.round, s.e.starts, s.e.stopped
		b := time.Now(); out := s.apply(ev); d := time.Since(b)
		waits, res := 0, 0
		for _, x := range out { switch x.(type) { case Wait: waits += len(x.(Wait).IDs); case Reserve: res++ } }
		n := 0; if tg, ok := ev.(Together); ok { n = len(tg) }
		all = append(all, rec{d, fmt.Sprintf("%s n=%d rounds=%d starts=%d stops=%d waits=%d reserves=%d", kind, n, s.e.round-r0, s.e.starts-st0, s.e.stopped-c0, waits, res)})
	}
	for i := 0; i < 1500; i++ {
		s.now = s.now.Add(70 * time.Millisecond)
		run(s.finish(), "finish"); run(s.any(), "submit")
		for ev, is := s.obey(); is; ev, is = s.obey() { run(ev, "obey") }
	}
	sort.Slice(all, func(i, j int) bool { return all[i].d > all[j].d })
	for _, r := range all[:40] { fmt.Println(r.d, r.what) }
	fmt.Println(len(all), all[len(all)/10], all[len(all)/4], all[len(all)/2])
	sum := map[string]time.Duration{}; _ = sum
}
