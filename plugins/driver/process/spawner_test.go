package process

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gangd/gangd/plugins/driver/cgroup"
)

// TestMain lets the test's program be a process with a spawner: it may have
// one only, and reaps whatever ends below it.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "spawner" {
		os.Exit(runSpawner(os.Args[2]))
	}
	os.Exit(m.Run())
}

// request is what a spawner's process is to do.
type request struct {
	Group    string // of the lane; none for ""
	Commands []Command
}

// answer is its first line of output, and nothing else for commands that
// cannot start.
type answer struct {
	Group  cgroup.Group
	PIDs   []int
	OOM    []string // the oom_score_adj of each, right after its start
	Own    string   // the control groups of the spawner's process
	Errors []string
}

func start(s *Spawner, c Command) (*Child, error) {
	reached, err := s.Reach(c)
	if err != nil {
		return nil, err
	}
	return reached.Start(os.Stdout, os.Stderr)
}

// runSpawner starts the commands, answers, and ends after them.
func runSpawner(asked string) int {
	runtime.GOMAXPROCS(1) // so that goroutines come to run on the first thread
	var r request
	var a answer
	err := json.Unmarshal([]byte(asked), &r)
	if err == nil && r.Group != "" {
		// Where not all is permitted, the group holds what it can.
		a.Group, _ = cgroup.Detect().Create(r.Group, 256<<20)
	}
	for resource, soft := range map[int]uint64{unix.RLIMIT_NOFILE: 1 << 10, unix.RLIMIT_MEMLOCK: 1 << 16} {
		var limit unix.Rlimit
		if err == nil {
			err = unix.Getrlimit(resource, &limit)
		}
		if limit.Cur = min(limit.Cur, soft); err == nil { // what services are given
			err = unix.Setrlimit(resource, &limit)
		}
	}
	var s *Spawner
	if err == nil {
		s, err = NewSpawner(a.Group)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	var children []*Child
	for _, c := range r.Commands {
		child, err := start(s, c)
		if err != nil {
			a.Errors = append(a.Errors, err.Error())
			continue
		}
		adj, _ := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", child.PID))
		a.PIDs, a.OOM = append(a.PIDs, child.PID), append(a.OOM, strings.TrimSpace(string(adj)))
		children = append(children, child)
	}
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return 1
	}
	a.Own = string(own)
	line, err := json.Marshal(a)
	if err != nil {
		return 1
	}
	os.Stdout.Write(append(line, '\n'))
	for _, c := range children {
		<-c.Done()
	}
	return 0
}

// spawn runs a process with a spawner until its answer, and its end with wait.
func spawn(t *testing.T, r request) (a answer, output func() string, cmd *exec.Cmd) {
	t.Helper()
	asked, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	cmd = exec.Command(os.Args[0], "spawner", string(asked))
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		for deadline := time.Now().Add(10 * time.Second); a.Group.Remove() != nil && time.Now().Before(deadline); {
			time.Sleep(5 * time.Millisecond) // the kernel takes the dead out a little later
		}
	})
	reader := bufio.NewReader(stdout)
	var said bytes.Buffer
	for { // the answer comes among the lines of the commands
		line, err := reader.ReadBytes('\n')
		if err != nil {
			t.Fatalf("no answer: %v; it said %s", err, said.Bytes())
		}
		if line[0] == '{' && json.Unmarshal(line, &a) == nil {
			break
		}
		said.Write(line)
	}
	return a, func() string { said.ReadFrom(reader); return said.String() }, cmd
}

// self is a script that tells what its process is.
const self = `
pid=$$
echo "cwd $(readlink /proc/$pid/cwd)"
echo "stdin $(readlink /proc/$pid/fd/0)"
ls /proc/$pid/fd # a pipe would be one more
echo "parent, group, session" $(cut -d' ' -f4-6 /proc/$pid/stat)
grep -E '^(Uid|Gid|Groups|CapEff|SigBlk|NoNewPrivs)' /proc/$pid/status | tr -s '\t ' ' '
grep -E '^Max (open files|locked memory)' /proc/$pid/limits | tr -s ' '
tr '\0' '\n' < /proc/$pid/environ | sed 's/^/env /'
sed 's/^/cgroup /' /proc/$pid/cgroup
`

func shell(script string, user *Credential) Command {
	return Command{Path: "/bin/sh", Argv: []string{"sh", "-c", script}, Env: []string{"A=b c", "PATH=/usr/bin:/bin"}, Dir: "/usr", Credential: user}
}

// TestWhatACommandIsBornWith: all that a start promises, for this process's
// user and for another.
func TestWhatACommandIsBornWith(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can raise limits, and start processes of another user")
	}
	for name, user := range map[string]*Credential{"own": nil, "other": {UID: 65534, GID: 65533, Groups: []int{65533, 7}}} {
		t.Run(name, func(t *testing.T) {
			c := shell(self, user)
			c.OOMScoreAdj = 321
			a, output, cmd := spawn(t, request{Group: fmt.Sprintf("test-%d-%s", os.Getpid(), name), Commands: []Command{c}})
			got := output()
			if len(a.PIDs) != 1 {
				t.Fatalf("it did not start: %v", a.Errors)
			}
			want := []string{
				"cwd /usr", "stdin /dev/null",
				fmt.Sprintf("parent, group, session %d %d %d", cmd.Process.Pid, a.PIDs[0], a.PIDs[0]),
				"SigBlk: 0000000000000000", "NoNewPrivs: 0",
				limitWanted(t, "Max open files", "files", unix.RLIMIT_NOFILE, 1<<20),
				limitWanted(t, "Max locked memory", "bytes", unix.RLIMIT_MEMLOCK, unix.RLIM_INFINITY),
				"env A=b c", "env PATH=/usr/bin:/bin",
			}
			if user == nil {
				want = append(want, "Uid: 0 0 0 0", "Gid: 0 0 0 0")
			} else {
				want = append(want, "Uid: 65534 65534 65534 65534", "Gid: 65533 65533 65533 65533", "Groups: 7 65533", "CapEff: 0000000000000000")
			}
			lines := strings.Split(got, "\n")
			for i := range lines {
				lines[i] = strings.TrimSpace(lines[i])
			}
			for _, line := range append(want, groupsWanted(a.Group, lines)...) {
				if !slices.Contains(lines, line) {
					t.Errorf("it is not %q:\n%s", line, got)
				}
			}
			if !strings.Contains(got, "stdin /dev/null\n0\n1\n2\nparent") {
				t.Errorf("it has other files open than 0, 1 and 2:\n%s", got)
			}
			if n := strings.Count(got, "\nenv "); n != 2 {
				t.Errorf("its environment has %d variables:\n%s", n, got)
			}
			if a.OOM[0] != "321" {
				t.Errorf("its oom_score_adj is %s", a.OOM[0])
			}
		})
	}
}

// limitWanted is the line of /proc/PID/limits for a limit that was raised to
// what is asked, or as far as this process may.
func limitWanted(t *testing.T, name, unit string, resource int, asked uint64) string {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(status), "CapEff:")
	var rights uint64
	if _, err := fmt.Sscanf(after, "%x", &rights); err != nil {
		t.Fatal(err)
	}
	if rights&(1<<unix.CAP_SYS_RESOURCE) == 0 {
		var limit unix.Rlimit
		if err := unix.Getrlimit(resource, &limit); err != nil {
			t.Fatal(err)
		}
		asked = min(asked, limit.Max)
	}
	text := strconv.FormatUint(asked, 10)
	if asked == unix.RLIM_INFINITY {
		text = "unlimited"
	}
	return fmt.Sprintf("%s %s %s %s", name, text, text, unit)
}

// groupsWanted are the lines of /proc/PID/cgroup for a process of the group,
// whose directories end like the paths there.
func groupsWanted(g cgroup.Group, lines []string) []string {
	var want []string
	for controller, dir := range map[string]string{"": g.V2, "memory": g.Memory, "pids": g.V1} {
		if dir == "" || controller != "" && dir == g.V2 {
			continue
		}
		line := fmt.Sprintf("cgroup of %q is not a part of %s", controller, dir)
		for _, l := range lines {
			if parts := strings.SplitN(l, ":", 3); len(parts) == 3 && parts[1] == controller && parts[2] != "/" && strings.HasSuffix(dir, parts[2]) {
				line = l
			}
		}
		want = append(want, line)
	}
	return want
}

// TestEveryCommandIsInTheGroup: the group never misses one, and what has no
// group is in none.
func TestEveryCommandIsInTheGroup(t *testing.T) {
	name := fmt.Sprintf("test-%d-all", os.Getpid())
	const starts = 8
	a, output, _ := spawn(t, request{Group: name, Commands: slices.Repeat([]Command{shell("cat /proc/self/cgroup", nil)}, starts)})
	if a.Group.V2 == "" && a.Group.V1 == "" {
		t.Skip("no control group can be made here")
	}
	if got := strings.Count(output(), "/gangd/"+name); len(a.PIDs) != starts || got%starts != 0 || got == 0 {
		t.Errorf("%d of %d started, and %d groups were told", len(a.PIDs), starts, got)
	}
	for line := range strings.Lines(a.Own) {
		if strings.Contains(line, "/gangd/"+name) && !strings.HasSuffix(line, "/keeper\n") {
			t.Errorf("the process that starts them is itself in %s", line)
		}
	}
	_, output, _ = spawn(t, request{Commands: []Command{shell("cat /proc/self/cgroup", nil)}})
	if strings.Contains(output(), "/gangd/"+name) {
		t.Errorf("without a group it is in %s", output())
	}
}

// TestCommandsDieWithTheirParent, even where a change of user came between.
func TestCommandsDieWithTheirParent(t *testing.T) {
	commands := []Command{shell("exec sleep 600", nil)}
	if os.Getuid() == 0 {
		commands = append(commands, shell("exec sleep 600", &Credential{UID: 65534, GID: 65534}))
	}
	a, _, cmd := spawn(t, request{Commands: commands})
	if len(a.PIDs) != len(commands) {
		t.Fatalf("not all started: %v", a.Errors)
	}
	var refs []Ref
	for _, pid := range a.PIDs {
		ref, err := Find(pid)
		if err != nil || !ref.Alive() {
			t.Fatalf("process %d: %v", pid, err)
		}
		refs = append(refs, ref)
	}
	cmd.Process.Kill()
	for deadline := time.Now().Add(10 * time.Second); slices.ContainsFunc(refs, Ref.Alive); {
		if time.Now().After(deadline) {
			t.Fatalf("of %v some live without their parent", refs)
		}
	}
}

func TestStartingWhatCannotStart(t *testing.T) {
	a, _, _ := spawn(t, request{Commands: []Command{
		{Path: "/no/such/program", Argv: []string{"x"}, Dir: "/"},
		{Path: "/bin/true", Argv: []string{"true"}, Dir: "/no/such/dir"},
		{Path: "/etc/passwd", Argv: []string{"x"}, Dir: "/", Credential: &Credential{UID: 65534, GID: 65534}},
	}})
	want := []string{
		"start /no/such/program in /: no such file or directory",
		"start /bin/true in /no/such/dir: no such file or directory",
		"start /etc/passwd in / as user 65534: permission denied",
	}
	if os.Getuid() != 0 {
		want[2] = "start /etc/passwd in / as user 65534: operation not permitted"
	}
	if !slices.Equal(a.Errors, want) || len(a.PIDs) > 0 {
		t.Errorf("got %q, want %q", a.Errors, want)
	}
}

func TestAGroupThatCannotBeJoined(t *testing.T) {
	for _, g := range []cgroup.Group{{V2: "/no/group"}, {V1: "/no/group"}, {Memory: "/no/group"}} {
		if s, err := NewSpawner(g); s != nil || !errors.Is(err, os.ErrNotExist) {
			t.Errorf("of %+v: a spawner %v, %v", g, s, err)
		}
	}
}

// TestFileSystemsThatDoNotAnswer: a FIFO that nobody writes to opens as slowly
// as a file of a server that is gone.
func TestFileSystemsThatDoNotAnswer(t *testing.T) {
	path := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(path, 0o700); err != nil {
		t.Fatal(err)
	}
	s := &Spawner{limit: 20 * time.Millisecond}
	_, err := s.Reach(Command{Path: path, Dir: "/"})
	if err == nil || !strings.Contains(err.Error(), "did not answer within 20ms") {
		t.Errorf("got %v", err)
	}
	writer, err := os.OpenFile(path, os.O_RDWR, 0) // lets go of who waits
	if err != nil {
		t.Fatal(err)
	}
	writer.Close()
}

// BenchmarkStart tells what a start costs, here and in the command (true), with
// all that its process does until its end.
func BenchmarkStart(b *testing.B) {
	s, err := NewSpawner(cgroup.Group{})
	if err != nil {
		b.Fatal(err)
	}
	c := Command{Path: "/bin/true", Argv: []string{"true"}, Dir: "/"}
	before := used(b)
	for b.Loop() {
		child, err := start(s, c)
		if err != nil {
			b.Fatal(err)
		}
		<-child.Done()
	}
	b.ReportMetric(float64((used(b)-before).Microseconds())/float64(b.N), "cpu-us/op")
}

// used is the processor time of this process and its children.
func used(b *testing.B) time.Duration {
	var sum time.Duration
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var u syscall.Rusage
		if err := syscall.Getrusage(who, &u); err != nil {
			b.Fatal(err)
		}
		sum += time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	return sum
}
