package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/gangd/gangd/internal/gang"
	"github.com/gangd/gangd/internal/record"
	"github.com/gangd/gangd/internal/schedule"
	"github.com/gangd/gangd/internal/sim"
)

// replayFlags are those of gangd sim that concern recordings.
type replayFlags struct {
	record, replay, at, explain string
	all                         *flag.FlagSet
}

func (r *replayFlags) declare(f *flag.FlagSet) {
	r.all = f
	f.StringVar(&r.record, "record", "", "Record what the engine is told and decides into this `FILE`.")
	f.StringVar(&r.replay, "replay", "", "Instead of a scenario, decide again what is recorded in this `FILE`, as gangd agent -record\nwrites it, and hold each decision against the one that was made. With - it is read from\nstandard input.")
	f.StringVar(&r.at, "at", "", "With -replay, stop after this `MOMENT`, the number of an event or a time such as\n2026-12-01T14:20:27Z, and print who runs and who waits then.")
	f.StringVar(&r.explain, "explain", "", "With -replay, print why the gang with this `ID` waits at the end, or at the moment of -at, and\nall that happened to it until then.")
}

// wrong says what is wrong with the options; nil for nothing.
func (r *replayFlags) wrong(p *playFlags, files int) error {
	switch {
	case r.replay == "" && (r.at != "" || r.explain != ""):
		return fmt.Errorf("-at and -explain are of a recording: -replay is missing")
	case r.replay != "" && files > 0:
		return fmt.Errorf("-replay takes no scenario beside the recording")
	case r.replay != "" && r.foreign() != "":
		return fmt.Errorf("-replay shows what was decided: it takes no -%s", r.foreign())
	case r.explain != "" && r.asJSON():
		return fmt.Errorf("-explain is for people: it takes no -json")
	case r.record != "" && p.compare:
		return fmt.Errorf("-record is of one policy, and -compare plays several")
	}
	_, err := r.moment()
	return err
}

// foreign is an option that was given, and is of plays; empty for none.
func (r *replayFlags) foreign() (name string) {
	r.all.Visit(func(f *flag.Flag) {
		switch f.Name {
		case "replay", "at", "explain", "json":
		default:
			name = f.Name
		}
	})
	return name
}

func (r *replayFlags) asJSON() bool { return r.all.Lookup("json").Value.String() == "true" }

// moment is the one of -at: a number of an event, or a time; neither where all is
// to be replayed.
type moment struct {
	n  uint64
	at time.Time
}

func (r *replayFlags) moment() (moment, error) {
	if r.at == "" {
		return moment{}, nil
	}
	if n, err := strconv.ParseUint(r.at, 10, 64); err == nil && n > 0 {
		return moment{n: n}, nil
	}
	at, err := time.Parse(time.RFC3339Nano, r.at)
	if err != nil {
		return moment{}, fmt.Errorf("-at %q is neither the number of an event nor a time such as 2026-12-01T14:20:27Z", r.at)
	}
	return moment{at: at}, nil
}

// over reports whether a step comes after the moment.
func (m moment) over(s record.Step) bool {
	return m.n > 0 && s.N > m.n || !m.at.IsZero() && s.At.After(m.at)
}

// replay decides again what is recorded.
func (t *terminal) replay(ctx context.Context, o *replayFlags, asJSON bool) int {
	until, err := o.moment()
	if err != nil {
		return t.misuse("%v", err)
	}
	in := t.in
	if o.replay != "-" {
		f, err := os.Open(o.replay)
		if err != nil {
			return t.fail(ctx, fmt.Errorf("%w: %w", record.ErrUnreadable, err))
		}
		defer f.Close()
		in = f
	}
	name := fileName(o.replay)
	r, err := record.NewReader(in)
	if err == nil && !until.at.IsZero() && until.at.Before(r.Head.Snapshot.Now) {
		err = fmt.Errorf("the recording begins at %s, after that: what was before may be in %s.1", r.Head.Snapshot.Now.UTC().Format(time.RFC3339Nano), name)
	}
	if err != nil {
		return t.fail(ctx, fmt.Errorf("%s: %w", name, err))
	}
	r.Last = until.n
	out := bufio.NewWriter(t.out)
	log := &replayLog{out: out, only: gang.ID(o.explain), quiet: !asJSON && (o.at != "" || o.explain != ""), asJSON: asJSON, names: make(map[string]string)}
	for _, n := range r.Head.Snapshot.Cluster.Nodes {
		log.name(n.Spec)
	}
	engine, err := r.Replay(func(s record.Step) (bool, error) {
		if until.over(s) {
			log.until = until.at
			return false, nil
		}
		return true, cmp.Or(log.take(s), ctx.Err())
	})
	if flushed := out.Flush(); err == nil {
		err = flushed
	}
	if err == nil && log.last.N < until.n {
		err = fmt.Errorf("the recording ends with event %d", log.last.N)
	}
	if err != nil {
		return t.fail(ctx, fmt.Errorf("%s: %w", name, hinted(err, r, log)))
	}
	if asJSON {
		return exitOK
	}
	return t.replayed(engine, r, log)
}

// hinted is an error of a replay with what to do.
func hinted(err error, r *record.Reader, log *replayLog) error {
	var other *record.DifferenceError
	switch {
	case errors.Is(err, record.ErrUnreadable) && log.last.N > 0:
		return fmt.Errorf("%w; what is before that can be seen with -at %d", err, log.last.N)
	case errors.As(err, &other) && r.Head.Version != version:
		return fmt.Errorf("%w\ngangd %s recorded it, and this is gangd %s: replay it with that one, to see what it decided", err, r.Head.Version, version)
	}
	return err
}

// replayed prints what a replay came to.
func (t *terminal) replayed(e *schedule.Engine, r *record.Reader, log *replayLog) int {
	then := *t
	then.now = func() time.Time { return log.moment(r.Head.Snapshot.Now) }
	switch {
	case log.only != "":
		if !then.explainReplayed(e, log) {
			fmt.Fprintf(t.err, "Error: gang %s neither waits nor runs then, and nothing happened to it before\n", log.only)
			return exitRefused
		}
	case log.quiet:
		then.showReplayed(e)
	}
	if log.last.N == 0 {
		fmt.Fprintf(t.out, "\nThat is how gangd %s began to record: no event comes before.\n", r.Head.Version)
	} else {
		fmt.Fprintf(t.out, "\n%d events up to %s, %d decisions: all came out as gangd %s recorded them.\n",
			log.last.N, log.last.At.UTC().Format("2006-01-02 15:04:05.000 UTC"), log.decisions, r.Head.Version)
	}
	if r.CutOff {
		fmt.Fprintln(t.out, "The last line of the recording is cut off, and left out.")
	}
	return exitOK
}

// maxShown bounds the rows of who runs and who waits.
const maxShown = 100

// showReplayed prints who runs and who waits.
func (t *terminal) showReplayed(e *schedule.Engine) {
	s, reasons := e.Snapshot(), e.Explainer(t.now())
	runs := [][]string{{"Runs", "Tier", "Tenant", "GPUs", "Attempt", "Started", "Should end"}}
	for _, r := range s.Runs[:min(len(s.Runs), maxShown)] {
		_, ends, _ := e.Expect(r.ID, t.now())
		stops := t.ahead(atMillis(ends))
		if r.Stop != nil && r.Stop.Cause != "" {
			stops = string(r.Stop.Cause)
		} else if r.Stop != nil {
			stops = "ending"
		}
		runs = append(runs, []string{string(r.ID), r.Spec.Tier, r.Spec.Tenant, fmt.Sprint(r.Place.GPUs()), fmt.Sprint(r.Attempt), t.moment(atMillis(r.Began)), stops})
	}
	waits := [][]string{{"Waits", "Tier", "Tenant", "GPUs", "Position", "Code", "Should start", "Reason"}}
	for _, w := range s.Waiting[:min(len(s.Waiting), maxShown)] {
		code, reason, place, _ := reasons.Explain(w.Gang.ID)
		starts, _, _ := e.Expect(w.Gang.ID, t.now())
		waits = append(waits, []string{
			string(w.Gang.ID), w.Gang.Spec.Tier, w.Gang.Spec.Tenant, fmt.Sprint(w.Gang.Spec.GPUs), fmt.Sprint(place), string(code), t.ahead(atMillis(starts)), reason,
		})
	}
	for _, rows := range [][][]string{runs, waits} {
		if len(rows) > 1 {
			fmt.Fprintf(t.out, "\n%s\n", t.fit(table(rows)))
		}
	}
	fmt.Fprintf(t.out, "\n%d run and %d wait", len(s.Runs), len(s.Waiting))
	if len(s.Runs) > maxShown || len(s.Waiting) > maxShown {
		fmt.Fprintf(t.out, "; of each at most %d are shown", maxShown)
	}
	fmt.Fprintln(t.out, ".")
}

func atMillis(at time.Time) int64 {
	if at.IsZero() {
		return 0
	}
	return gang.Millis(at)
}

// explainReplayed prints what gangd explain would have printed, and what happened
// to the gang; false where there is nothing to say.
func (t *terminal) explainReplayed(e *schedule.Engine, log *replayLog) bool {
	x := e.Explainer(t.now())
	o := gang.Outlook{Status: gang.Status{Record: gang.Record{ID: log.only, State: gang.Running}}}
	code, reason, place, waits := x.Explain(log.only)
	starts, ends, protected := e.Expect(log.only, t.now())
	switch {
	case waits:
		o.State, o.Code, o.Reason, o.Position = gang.Queued, code, reason, place
		o.Ahead, o.Waiting = x.Ahead(log.only, gang.MaxAhead)
		o.Starts = atMillis(starts)
	case !ends.IsZero():
		o.Ends, o.Protected = atMillis(ends), atMillis(protected)
	case len(log.history) == 0:
		return false
	default:
		fmt.Fprintf(t.out, "%s neither waits nor runs on\n", log.only)
		t.section("History", table(log.history))
		return true
	}
	t.showOutlook(o)
	if len(log.history) > 1 {
		t.section("History", table(log.history))
	}
	return true
}

// recorder makes a policy's engine record, where that is asked for.
func (p *plays) recorder(rules schedule.Config) (sim.Engine, func() error, error) {
	e := schedule.New(rules)
	if p.record == "" {
		return e, func() error { return nil }, nil
	}
	f, err := os.Create(p.record)
	if err != nil {
		return nil, nil, fmt.Errorf("record the play: %w", err)
	}
	out := bufio.NewWriter(f)
	tape, err := record.NewTape(out, version, rules, e.Snapshot())
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	taped := &tapedEngine{Engine: e, tape: tape}
	return taped, func() error {
		err := taped.err
		if flushed := out.Flush(); err == nil {
			err = flushed
		}
		if closed := f.Close(); err == nil {
			err = closed
		}
		return err
	}, nil
}

// tapedEngine records what it is told and decides.
type tapedEngine struct {
	*schedule.Engine
	tape *record.Tape
	err  error // of the tape, the first
}

// Apply is the engine's.
func (e *tapedEngine) Apply(ev schedule.Event, now time.Time) ([]schedule.Decision, error) {
	decisions, refused := e.Engine.Apply(ev, now)
	if err := e.tape.Take(ev, now, decisions, refused); e.err == nil {
		e.err = err
	}
	return decisions, refused
}
