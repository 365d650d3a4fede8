package main

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gangd/gangd/internal/link/linkpb"
	"github.com/gangd/gangd/internal/nomadplugin"
	"github.com/gangd/gangd/plugins/driver/lane"
	"github.com/gangd/gangd/plugins/driver/process"
)

func TestAGangFromAdmissionToArtifact(t *testing.T) {
	l := newLab(t)
	told := l.events()
	c := l.task("serve", "env {\n COLOUR = \"red\"\n}")
	l.start(c)
	admit := l.await("a request to be admitted", isAdmit).GetAdmit()
	if admit.Lane != "lane-1" || admit.Allocation != "alloc-1" || admit.State != linkpb.LaneState_LANE_STATE_NEW ||
		!slices.Equal(admit.GpuUuids, []string{l.uuids[2], l.uuids[4]}) {
		t.Errorf("asked to be admitted with %v", admit)
	}
	if pids := l.pids(c.ID); len(pids) > 0 {
		t.Fatalf("processes %v run before admission", pids)
	}
	l.admit(patience)
	if digest := l.await("ready", isReady).GetReady().ModelDigest; digest != "digest-1" {
		t.Errorf("model digest %q", digest)
	}
	l.run("")
	if port := l.await("accepted", isAccepted).GetAccepted().MasterPort; port == 0 {
		t.Error("member 0 reserved no master port")
	}
	ended := l.await("the end", isEnded).GetEnded()
	if ended.Outcome != linkpb.Outcome_OUTCOME_SUCCEEDED || ended.ProcessesGone {
		t.Errorf("ended with %v", ended)
	}
	artifact := l.await("the result", func(r *linkpb.KeeperReport) bool { return r.GetResult() != nil }).GetResult().Artifact
	if content, err := os.ReadFile(filepath.Join(l.blobDir, artifact.GetKey())); err != nil || string(content) != "a red ball" {
		t.Errorf("artifact %v: %q, %v", artifact, content, err)
	}
	for rank := range uint32(2) {
		if l.find(func(r *linkpb.KeeperReport) bool { return r.GetStep().GetRank() == rank && r.GetStep().GetI() == 50 }) == nil {
			t.Errorf("the last step of rank %d was not told", rank)
		}
	}
	result, err := l.driver.ExecTask(context.Background(), c.ID, []string{"sh", "-c", "echo $COLOUR $LOCAL_WORLD_SIZE $CUDA_VISIBLE_DEVICES; exit 4"}, time.Second)
	if want := "red 2 " + l.uuids[2] + "," + l.uuids[4] + "\n"; err != nil || string(result.Stdout) != want || result.Exit.Code != 4 {
		t.Errorf("exec: %q, %+v, %v; want %q", result.Stdout, result.Exit, err, want)
	}
	l.order(&linkpb.KeeperOrder{Order: &linkpb.KeeperOrder_Close{Close: &linkpb.Close{Reason: "idle for long"}}})
	l.await("closed", isClosed)
	if exit := l.wait(c.ID); exit.Code != 0 || exit.Message != "" {
		t.Errorf("exit %+v", exit)
	}
	for _, want := range []string{"Admitted by gangd (lane lane-1)", "Runner ready: 2 ranks in ", "Gang sea-1 attempt 1 started (member 0, ranks 0-1)", "Gang sea-1 attempt 1 finished", "closed by gangd: idle for long"} {
		eventually(t, "the task's events say "+want, func() bool { return strings.Contains(told(), want) })
	}
	output, err := os.ReadFile(l.dir(c.ID).Output("stdout"))
	if err != nil || !strings.Contains(string(output), "rank 1 | running sea-1 as rank 1 of 2, master 127.0.0.1:") {
		t.Errorf("kept output: %s, %v", output, err)
	}
}

func TestARefusedLaneStartsNothing(t *testing.T) {
	l := newLab(t)
	c := l.task("serve", "")
	l.start(c)
	l.await("a request to be admitted", isAdmit)
	l.order(&linkpb.KeeperOrder{Order: &linkpb.KeeperOrder_NotAdmitted{NotAdmitted: &linkpb.Refused{Reason: "the lane is closed"}}})
	exit := l.wait(c.ID)
	if exit.Code != 1 || exit.Message != "gangd refused lane lane-1: the lane is closed" {
		t.Errorf("exit %+v", exit)
	}
	if output, err := os.ReadFile(l.dir(c.ID).Output("stdout")); err == nil {
		t.Errorf("a runner wrote %s", output)
	}
	status, err := l.driver.InspectTask(context.Background(), c.ID)
	if err != nil || status.State != nomadplugin.TaskExited || status.Exit != exit {
		t.Errorf("inspected %+v, %v", status, err)
	}
}

func TestCancelLeavesNothing(t *testing.T) {
	for _, character := range []string{"stubborn", "parent"} {
		t.Run(character, func(t *testing.T) {
			l := newLab(t)
			c := l.task(character, "")
			l.running(c, "wait")
			ranks := l.allPIDs(c.ID)
			if least := map[string]int{"stubborn": 2, "parent": 4}[character]; len(ranks) < least {
				t.Fatalf("the lane has processes %v, want at least %d", ranks, least)
			}
			began := time.Now()
			l.cancel()
			ended := l.await("the end", isEnded).GetEnded()
			if ended.Outcome != linkpb.Outcome_OUTCOME_CANCELLED || !ended.ProcessesGone {
				t.Errorf("ended with %v", ended)
			}
			t.Logf("gone %v after the order", time.Since(began).Round(time.Millisecond))
			for _, r := range ranks {
				if r.Alive() {
					t.Errorf("process %d lives", r.PID)
				}
			}
			if exit := l.wait(c.ID); exit.Code != 0 {
				t.Errorf("exit %+v", exit)
			}
		})
	}
}

func TestAKilledRankTakesTheLaneWithIt(t *testing.T) {
	l := newLab(t)
	c := l.task("parent", "")
	l.running(c, "wait")
	syscall.Kill(l.pids(c.ID)[1], syscall.SIGKILL)
	exited := l.await("the rank's exit", isRankExit).GetRankExit()
	if exited.Rank != 1 || exited.Signal != 9 || exited.Gang != "sea-1" {
		t.Errorf("told of %v", exited)
	}
	if ended := l.await("the end", isEnded).GetEnded(); ended.Outcome != linkpb.Outcome_OUTCOME_RANK_LOST || !ended.ProcessesGone {
		t.Errorf("ended with %v", ended)
	}
	if left := l.allPIDs(c.ID); len(left) > 0 {
		t.Errorf("processes %v are left", left)
	}
	if exit := l.wait(c.ID); exit.Signal != 9 || !strings.Contains(exit.Message, "rank 1 was killed by SIGKILL") {
		t.Errorf("exit %+v", exit)
	}
}

func TestRunnersThatFail(t *testing.T) {
	t.Run("in a run", func(t *testing.T) {
		l := newLab(t)
		c := l.task("serve", "")
		l.running(c, "fail")
		failure := l.await("the error", func(r *linkpb.KeeperReport) bool { return r.GetError() != nil }).GetError()
		if failure.Class != "bad_prompt" || failure.Retryable || failure.Message != "it makes no sense" {
			t.Errorf("told of %v", failure)
		}
		if exit := l.wait(c.ID); !strings.Contains(exit.Message, "it makes no sense") {
			t.Errorf("exit %+v", exit)
		}
	})
	t.Run("before it is ready", func(t *testing.T) {
		l := newLab(t)
		c := l.task("dies", "")
		l.start(c)
		l.admit(patience)
		closed := l.await("closed", isClosed).GetClosed()
		if !closed.RunnerFailed || !strings.Contains(closed.Reason, "exited with code 3 (its last line: the weights are on the moon) before the runner was ready") {
			t.Errorf("closed with %v", closed)
		}
	})
	t.Run("with a file that is not its own", func(t *testing.T) {
		l := newLab(t)
		l.running(l.task("serve", ""), "escape")
		ended := l.await("the end", isEnded).GetEnded()
		if ended.Outcome != linkpb.Outcome_OUTCOME_STORE_FAILED || !strings.Contains(ended.Message, "must lie below the run's output_dir") {
			t.Errorf("ended with %v", ended)
		}
	})
}

func TestTheLeaseRunsOut(t *testing.T) {
	l := newLab(t)
	c := l.task("stubborn", "")
	l.start(c)
	l.admit(patience)
	l.await("ready", isReady)
	l.run("wait")
	l.await("accepted", isAccepted)
	l.admit(300 * time.Millisecond) // the server renews each second
	if ended := l.await("the end", isEnded).GetEnded(); ended.Outcome != linkpb.Outcome_OUTCOME_LEASE_EXPIRED || !ended.ProcessesGone {
		t.Errorf("ended with %v", ended)
	}
	if exit := l.wait(c.ID); exit.Code != 1 || !strings.Contains(exit.Message, "the lease ran out") {
		t.Errorf("exit %+v", exit)
	}
}

func TestNomadStopsATask(t *testing.T) {
	l := newLab(t)
	c := l.task("stubborn", `kill_grace = "100ms"`)
	l.running(c, "wait")
	if err := l.driver.StopTask(context.Background(), c.ID, time.Second, ""); err != nil {
		t.Fatal(err)
	}
	if ended := l.await("the end", isEnded).GetEnded(); ended.Outcome != linkpb.Outcome_OUTCOME_TASK_STOPPED || !ended.ProcessesGone {
		t.Errorf("ended with %v", ended)
	}
	if closed := l.await("closed", isClosed).GetClosed(); !closed.StoppedByNomad {
		t.Errorf("closed with %v", closed)
	}
	if left := l.allPIDs(c.ID); len(left) > 0 {
		t.Errorf("processes %v are left", left)
	}
}

func TestDestroyNeedsForceWhileATaskRuns(t *testing.T) {
	l := newLab(t)
	c := l.task("parent", "")
	l.running(c, "wait")
	if err := l.driver.DestroyTask(context.Background(), c.ID, false); err == nil {
		t.Error("a running task was destroyed without force")
	}
	l.destroy(c.ID)
	if _, err := l.driver.WaitTask(context.Background(), c.ID); err == nil {
		t.Error("the task is still known")
	}
}

func TestRanksDieWithTheirKeeper(t *testing.T) {
	l := newLab(t)
	c := l.task("parent", "")
	l.running(c, "wait")
	ranks := l.allPIDs(c.ID)
	k, err := l.dir(c.ID).Keeper()
	if err != nil {
		t.Fatal(err)
	}
	if err := k.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	exit := l.wait(c.ID)
	if !strings.HasPrefix(exit.Message, "keeper lost") {
		t.Errorf("exit %+v", exit)
	}
	for _, r := range ranks {
		if r.Alive() {
			t.Errorf("process %d outlives its keeper", r.PID)
		}
	}
}

// TestATaskIsStartedTwice: Nomad repeats a start over which the plugin died.
func TestATaskIsStartedTwice(t *testing.T) {
	l := newLab(t)
	c := l.task("serve", "")
	first, second := l.start(c), l.start(c)
	if string(first.State) != string(second.State) {
		t.Errorf("two keepers: %s and %s", first.State, second.State)
	}
}

func TestOutOfMemoryIsTold(t *testing.T) {
	l := newLab(t)
	c := l.task("hog", "")
	c.Resources.MemoryMiB = 256
	l.start(c)
	if k, err := l.dir(c.ID).Keeper(); err != nil || k.Group.Memory == "" {
		t.Skipf("memory cannot be limited here: %+v, %v", k, err)
	}
	l.admit(patience)
	if closed := l.await("closed", isClosed).GetClosed(); !strings.Contains(closed.Reason, "out of memory") {
		t.Errorf("closed with %v", closed)
	}
	if exit := l.wait(c.ID); !exit.OOMKilled || exit.Signal != 9 {
		t.Errorf("exit %+v", exit)
	}
}

// TestAPluginIsKilled: the keeper and its gang go on, and another process of
// the plugin takes the task over.
func TestAPluginIsKilled(t *testing.T) {
	l := newLab(t)
	c := l.task("serve", "")
	t.Cleanup(func() { l.destroy(c.ID) })
	file := filepath.Join(t.TempDir(), "start")
	writeJSON(t, file, struct {
		Config []byte
		Task   nomadplugin.TaskConfig
	}{l.config, c})
	plugin := exec.Command(os.Args[0], "plugin", file)
	plugin.Stderr = os.Stderr
	stdout, err := plugin.StdoutPipe()
	if err == nil {
		err = plugin.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	state, err := bufio.NewReader(stdout).ReadBytes('\n')
	if err != nil {
		t.Fatal(err)
	}
	l.admit(patience)
	l.await("ready", isReady)
	l.run("wait")
	l.await("accepted", isAccepted)
	ranks := l.allPIDs(c.ID)
	plugin.Process.Kill()
	plugin.Wait()

	told := l.events()
	handle := nomadplugin.TaskHandle{Version: 1, Config: c, State: state}
	if err := l.driver.RecoverTask(context.Background(), handle); err != nil {
		t.Fatal(err)
	}
	if got := l.state(c.ID); got != "busy" {
		t.Errorf("the lane is %q after its plugin was killed", got)
	}
	if len(ranks) != 2 || !ranks[0].Alive() || !ranks[1].Alive() {
		t.Errorf("ranks %v do not all live", ranks)
	}
	l.cancel()
	if exit := l.wait(c.ID); exit.Code != 0 {
		t.Errorf("exit %+v", exit)
	}
	eventually(t, "events of the time without plugin and after are told", func() bool {
		return strings.Contains(told(), "Gang sea-1 attempt 1 cancelled: by its user")
	})
}

func TestRecoveringWhatHasEnded(t *testing.T) {
	l := newLab(t)
	dead := exec.Command("true")
	if err := dead.Run(); err != nil {
		t.Fatal(err)
	}
	recovered := func(name string, record func(lane.Dir)) nomadplugin.ExitResult {
		c := nomadplugin.TaskConfig{ID: name, Name: name, AllocID: "alloc-1"}
		dir := l.dir(c.ID)
		lock, err := dir.Lock()
		if err == nil {
			err = dir.Prepare(lane.Config{Lane: name})
		}
		if err != nil {
			t.Fatal(err)
		}
		lock.Close()
		record(dir)
		state := `{"dir":"` + string(dir) + `","keeper":{"pid":` + strconv.Itoa(dead.Process.Pid) + `,"started":1}}`
		if err := l.driver.RecoverTask(context.Background(), nomadplugin.TaskHandle{Config: c, State: []byte(state)}); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		defer l.destroy(c.ID)
		return l.wait(c.ID)
	}
	exit := recovered("said how", func(dir lane.Dir) {
		if err := dir.SetExit(lane.Exit{Code: 7, Message: "rank 0 failed"}); err != nil {
			t.Fatal(err)
		}
	})
	if exit.Code != 7 || exit.Message != "rank 0 failed" {
		t.Errorf("exit %+v", exit)
	}
	if exit := recovered("lost", func(lane.Dir) {}); !strings.HasPrefix(exit.Message, "keeper lost") {
		t.Errorf("exit %+v", exit)
	}
	if exit := recovered("rebooted", func(dir lane.Dir) { dir.Remove() }); !strings.HasPrefix(exit.Message, "keeper lost") {
		t.Errorf("exit %+v", exit)
	}
}

func TestLogsReachNomadBeforeAndAfterItsDeath(t *testing.T) {
	l := newLab(t)
	c := l.task("serve", "")
	c.StdoutPath = filepath.Join(t.TempDir(), "stdout.fifo")
	if err := unix.Mkfifo(c.StdoutPath, 0o600); err != nil {
		t.Fatal(err)
	}
	l.running(c, "chatter") // while nobody reads
	first := openReader(t, c.StdoutPath)
	eventually(t, "the lines from before anyone read are there", func() bool {
		return strings.Contains(first.String(), "rank 0 | runner up") && strings.Contains(first.String(), "rank 1 | line 9\n")
	})
	first.file.Close() // the agent is killed
	kept := func() string { content, _ := os.ReadFile(l.dir(c.ID).Output("stdout")); return string(content) }
	lines := strings.Count(kept(), "\n")
	eventually(t, "the ranks go on while nobody reads", func() bool { return strings.Count(kept(), "\n") > lines+50 })
	second := openReader(t, c.StdoutPath)
	defer second.file.Close()
	eventually(t, "the new agent gets lines", func() bool { return strings.Count(second.String(), "\n") > 50 })
	l.cancel()
	l.wait(c.ID)
}

func TestCodeWithoutProtocol(t *testing.T) {
	l := newLab(t)
	c := l.task("plain", `protocol = "none"`)
	l.running(c, "")
	if ended := l.await("the end", isEnded).GetEnded(); ended.Outcome != linkpb.Outcome_OUTCOME_SUCCEEDED || !ended.ProcessesGone {
		t.Errorf("ended with %v", ended)
	}
	output, err := os.ReadFile(l.dir(c.ID).Output("stdout"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"rank 1 | RANK=1", "rank 1 | WORLD_SIZE=2", "rank 0 | GROUP_RANK=0", "rank 0 | MASTER_ADDR=127.0.0.1", "rank 1 | LOCAL_RANK=1", "rank 0 | CUDA_VISIBLE_DEVICES=" + l.uuids[2] + "," + l.uuids[4]} {
		if !strings.Contains(string(output), want) {
			t.Errorf("the output lacks %q:\n%s", want, output)
		}
	}
	if got := l.state(c.ID); got != "idle" {
		t.Errorf("the lane is %q", got)
	}
}

// TestOneProcessANode: the second member of a gang of two, with two GPUs each.
func TestOneProcessANode(t *testing.T) {
	l := newLab(t)
	told := l.events()
	c := l.task("serve", `processes = "node"`)
	l.start(c)
	l.admit(patience)
	l.await("ready", isReady)
	l.order(&linkpb.KeeperOrder{Order: &linkpb.KeeperOrder_Run{Run: &linkpb.Run{
		Gang: "sea-1", Attempt: 1, Member: 1, FirstRank: 2, World: 4, Peers: []string{"10.0.0.1", "10.0.0.1", "127.0.0.1", "127.0.0.1"},
		MasterAddress: "10.0.0.1", MasterPort: 29500, Params: []byte(`{"do":"wait"}`), BlobUrl: "file://" + l.blobDir,
	}}})
	l.await("the run's stage", func(r *linkpb.KeeperReport) bool { return r.GetStage() != nil && r.GetStage().Rank == 1 })
	pids := l.pids(c.ID)
	if len(pids) != 1 {
		t.Fatalf("processes %v, want one", pids)
	}
	kept := func() string { content, _ := os.ReadFile(l.dir(c.ID).Output("stdout")); return string(content) }
	const want = "rank 1 | running sea-1 as rank 1 of 2, master 10.0.0.1:29500"
	eventually(t, "its output says that it is "+want, func() bool { return strings.Contains(kept(), want) })
	syscall.Kill(pids[0], syscall.SIGKILL)
	if exited := l.await("the rank's exit", isRankExit).GetRankExit(); exited.Rank != 1 {
		t.Errorf("told of %v", exited)
	}
	eventually(t, "the task's events name the rank", func() bool {
		return strings.Contains(told(), "started (member 1, rank 1)") && strings.Contains(told(), "rank 1 was killed by SIGKILL")
	})
}

func TestGPUsInUseAreNotTouched(t *testing.T) {
	l := newLab(t)
	if err := os.WriteFile(l.faults, []byte("process gpu 4 pid 4242 memory 900MiB\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := l.task("serve", "")
	l.start(c)
	l.admit(patience)
	eventually(t, "the lane is admitted", func() bool { return l.state(c.ID) == "loading" })
	if pids := l.pids(c.ID); len(pids) > 0 {
		t.Errorf("ranks %v run beside process 4242", pids)
	}
	f, err := os.OpenFile(l.faults, os.O_APPEND|os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteString("exit gpu 4 pid 4242\n")
	}
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	l.await("ready, once the GPUs are free", isReady)
}

func TestRanksRunAsTheTasksUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can start processes of another user")
	}
	l := newLab(t)
	c := l.task("serve", "")
	nobody, err := process.Lookup("nobody")
	if err != nil {
		t.Skip("there is no user nobody")
	}
	c.User = "nobody"
	for dir := c.AllocDir; dir != "/" && dir != os.TempDir(); dir = filepath.Dir(dir) {
		os.Chmod(dir, 0o755)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for dir := filepath.Dir(self); dir != "/" && dir != os.TempDir(); dir = filepath.Dir(dir) {
		os.Chmod(dir, 0o755)
	}
	os.Chmod(l.stateDir, 0o711)
	l.start(c)
	l.admit(patience)
	l.await("ready", isReady)
	for _, pid := range l.pids(c.ID) {
		var stat unix.Stat_t
		if err := unix.Stat("/proc/"+strconv.Itoa(pid), &stat); err != nil || int(stat.Uid) != nobody.UID {
			t.Errorf("rank %d runs as user %d, %v", pid, stat.Uid, err)
		}
	}
	k, err := l.dir(c.ID).Keeper()
	if err != nil {
		t.Fatal(err)
	}
	ranks := l.allPIDs(c.ID)
	k.Signal(syscall.SIGKILL) // the bond to the keeper must have survived the change of user
	eventually(t, "the ranks are dead", func() bool { return !ranks[0].Alive() && !ranks[1].Alive() })
}

func TestTheBeatNamesTheNode(t *testing.T) {
	l := newLab(t)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	told := make(chan nomadplugin.Fingerprint, 1)
	go l.driver.Fingerprint(ctx, func(f nomadplugin.Fingerprint) { told <- f })
	if f := <-told; f.Health != nomadplugin.HealthHealthy {
		t.Errorf("fingerprint %+v", f)
	}
	eventually(t, "gangd hears of the node", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.hosts) > 0 && slices.Equal(l.hosts[0].GpuUuids, l.uuids)
	})
}
