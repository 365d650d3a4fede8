package gpu

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/hashicorp/go-hclog"
)

const (
	// faultChunkBytes bounds what is read from a fault file at a time, and so
	// the length of a line.
	faultChunkBytes = 1 << 20
	// faultEventsMost bounds the events that wait for a slow waiter.
	faultEventsMost = 4096
)

// mockState is a simulated GPU's present state.
type mockState struct {
	lost      bool
	action    RecoveryAction
	processes map[int]uint64 // memory in MiB by PID
	heldMiB   uint64
}

func (s mockState) usedBytes() uint64 {
	used := s.heldMiB
	for _, memoryMiB := range s.processes {
		used += memoryMiB
	}
	return used << 20
}

type mockEvent struct {
	gpu int
	xid uint64
}

// faults follows a fault file. The state is that of the file's lines, one after
// another; so every process that reads the file sees the same.
type faults struct {
	path string
	log  hclog.Logger

	mu     sync.Mutex
	states []mockState
	// file and offset say how far which file was read.
	file   fs.FileInfo
	offset int64
	line   int
	// failing is the last error of reading, so that each is logged once.
	failing string
	// events are the last ones; dropped is how many came before them.
	events  []mockEvent
	dropped int
}

func newFaults(path string, gpus int, log hclog.Logger) *faults {
	f := &faults{path: path, log: log, states: make([]mockState, gpus)}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refresh()
	return f
}

// state is a copy of a GPU's present state.
func (f *faults) state(gpu int) mockState {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refresh()
	s := f.states[gpu]
	s.processes = maps.Clone(s.processes)
	return s
}

// end is the cursor behind all events so far.
func (f *faults) end() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refresh()
	return f.dropped + len(f.events)
}

// next takes the event at the cursor.
func (f *faults) next(cursor *int) (mockEvent, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refresh()
	if *cursor < f.dropped {
		f.log.Error("simulated events were lost, because nobody waited for them", "events", f.dropped-*cursor)
		*cursor = f.dropped
	}
	if *cursor == f.dropped+len(f.events) {
		return mockEvent{}, false
	}
	e := f.events[*cursor-f.dropped]
	*cursor++
	return e, true
}

// refresh takes what was appended to the file.
func (f *faults) refresh() {
	if f.path == "" {
		return
	}
	err := f.read()
	switch {
	case err == nil:
		f.failing = ""
	case err.Error() != f.failing:
		f.failing = err.Error()
		f.log.Error("the fault file cannot be read", "error", err)
	}
}

func (f *faults) read() error {
	info, err := os.Stat(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		if f.file != nil {
			f.forget()
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("looking at the fault file: %w", err)
	}
	if f.file != nil && (!os.SameFile(f.file, info) || info.Size() < f.offset) {
		f.forget()
	}
	f.file = info
	if info.Size() == f.offset {
		return nil
	}
	file, err := os.Open(f.path)
	if err != nil {
		return fmt.Errorf("opening the fault file: %w", err)
	}
	defer file.Close()
	chunk, err := io.ReadAll(io.NewSectionReader(file, f.offset, faultChunkBytes))
	if err != nil {
		return fmt.Errorf("reading the fault file %s: %w", f.path, err)
	}
	// A line without its newline is still being written.
	whole := chunk[:bytes.LastIndexByte(chunk, '\n')+1]
	if len(whole) == 0 && len(chunk) == faultChunkBytes {
		return fmt.Errorf("reading the fault file %s: line %d is longer than %d bytes", f.path, f.line+1, faultChunkBytes)
	}
	f.offset += int64(len(whole))
	for line := range strings.Lines(string(whole)) {
		f.line++
		if err := f.apply(line); err != nil {
			f.log.Error("a line of the fault file is left out", "file", f.path, "line", f.line, "text", strings.TrimSpace(line), "error", err)
		}
	}
	return nil
}

// forget goes back to the state before any fault.
func (f *faults) forget() {
	f.states = make([]mockState, len(f.states))
	f.file, f.offset, f.line = nil, 0, 0
}

// faultForms are the lines that a fault file can have. Words in capitals stand
// for a value.
var faultForms = []struct {
	form  string
	apply func(f *faults, v faultValues)
}{
	{"xid CODE gpu INDEX", func(f *faults, v faultValues) { f.xid(v.gpu, v.code, effectOf(v.code)) }},
	{"xid CODE gpu INDEX action ACTION", func(f *faults, v faultValues) {
		f.xid(v.gpu, v.code, func(s *mockState) { s.action = v.action })
	}},
	{"action ACTION gpu INDEX", func(f *faults, v faultValues) { f.states[v.gpu].action = v.action }},
	{"recover gpu INDEX", func(f *faults, v faultValues) { f.recover(v.gpu) }},
	{"recover all", func(f *faults, _ faultValues) {
		for gpu := range f.states {
			f.recover(gpu)
		}
	}},
	{"process gpu INDEX pid PID memory MEMORY", func(f *faults, v faultValues) {
		if f.states[v.gpu].processes == nil {
			f.states[v.gpu].processes = map[int]uint64{}
		}
		f.states[v.gpu].processes[v.pid] = v.memoryMiB
	}},
	{"exit gpu INDEX pid PID", func(f *faults, v faultValues) { delete(f.states[v.gpu].processes, v.pid) }},
	{"hold gpu INDEX memory MEMORY", func(f *faults, v faultValues) { f.states[v.gpu].heldMiB = v.memoryMiB }},
}

// effectOf is what an XID leaves behind in the GPU.
func effectOf(xid uint64) func(*mockState) {
	return func(s *mockState) {
		switch ClassOf(xid) {
		case ClassReset:
			s.action = ActionReset
		case ClassWorkflow, ClassLink:
			s.action = ActionDrainAndReset
		case ClassReboot:
			s.lost = true
		}
	}
}

func (f *faults) xid(gpu int, xid uint64, effect func(*mockState)) {
	effect(&f.states[gpu])
	f.events = append(f.events, mockEvent{gpu: gpu, xid: xid})
	if extra := len(f.events) - faultEventsMost; extra > 0 {
		f.events = slices.Delete(f.events, 0, extra)
		f.dropped += extra
	}
}

func (f *faults) recover(gpu int) {
	f.xid(gpu, xidRecoveryAction, func(s *mockState) { s.lost, s.action = false, ActionNone })
}

// faultValues are the values in a line.
type faultValues struct {
	code      uint64
	gpu, pid  int
	memoryMiB uint64
	action    RecoveryAction
}

func (f *faults) apply(line string) error {
	words := strings.Fields(line)
	if len(words) == 0 || strings.HasPrefix(words[0], "#") {
		return nil
	}
	var forms []string
	for _, known := range faultForms {
		forms = append(forms, strconv.Quote(known.form))
		form := strings.Fields(known.form)
		if !matches(form, words) {
			continue
		}
		v, err := f.values(form, words)
		if err != nil {
			return err
		}
		known.apply(f, v)
		return nil
	}
	return fmt.Errorf("expected one of %s", strings.Join(forms, ", "))
}

func isValue(word string) bool { return word == strings.ToUpper(word) }

func matches(form, words []string) bool {
	return slices.EqualFunc(form, words, func(expected, word string) bool { return isValue(expected) || expected == word })
}

func (f *faults) values(form, words []string) (faultValues, error) {
	var v faultValues
	for i, kind := range form {
		word := words[i]
		var err error
		switch kind {
		case "CODE":
			v.code, err = strconv.ParseUint(word, 10, 64)
		case "INDEX":
			v.gpu, err = strconv.Atoi(word)
			if err == nil && (v.gpu < 0 || v.gpu >= len(f.states)) {
				err = fmt.Errorf("gpu %d: the server has GPUs 0 to %d", v.gpu, len(f.states)-1)
			}
		case "PID":
			v.pid, err = strconv.Atoi(word)
		case "MEMORY":
			v.memoryMiB, err = parseMiB(word)
		case "ACTION":
			v.action, err = parseAction(word)
		}
		if err != nil {
			return faultValues{}, err
		}
	}
	return v, nil
}

func parseMiB(word string) (uint64, error) {
	number, ok := strings.CutSuffix(word, "MiB")
	if !ok {
		return 0, fmt.Errorf("memory %q: expected a number and MiB, such as 1000MiB", word)
	}
	return strconv.ParseUint(number, 10, 32)
}

func parseAction(word string) (RecoveryAction, error) {
	for action, name := range actionNames {
		if name == word && action != ActionUnread {
			return action, nil
		}
	}
	return 0, fmt.Errorf("action %q: expected none, reset, reboot, drain_p2p, drain_and_reset, recover_imex, bus_reset or system_reboot", word)
}
