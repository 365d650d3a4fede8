package process

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestStat(t *testing.T) {
	const line = "7 (a) b (c) S 3 7 7 0 -1 4194560 1 2 3 4 250 50 7 8 20 0 1 0 12345 9000 2 18446744073709551615"
	s, err := parseStat(7, line)
	want := Stat{PID: 7, State: 'S', Parent: 3, Threads: 1, Started: 12345, User: 2500 * time.Millisecond, System: 500 * time.Millisecond, RSSBytes: 2 * uint64(os.Getpagesize())}
	if err != nil || s != want {
		t.Errorf("got %+v, %v; want %+v", s, err, want)
	}
	for _, bad := range []string{"", "7 (a", "7 (a) S 1 2"} {
		if _, err := parseStat(7, bad); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

// Of a process that is killed the first thread is a zombie at once; the others may
// hold its port for a while, and it is alive for as long.
func TestAProcessEndsWithItsLastThread(t *testing.T) {
	if os.Getenv("GANGD_TEST_THREADS") != "" {
		holdAPort()
	}
	for range 40 {
		cmd := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), "GANGD_TEST_THREADS=1")
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		address, err := bufio.NewReader(out).ReadString('\n')
		ref, found := Find(cmd.Process.Pid)
		if err := errors.Join(err, found, ref.Signal(syscall.SIGKILL)); err != nil {
			t.Fatal(err)
		}
		for deadline := time.Now().Add(10 * time.Second); ref.Alive(); {
			if time.Now().After(deadline) {
				t.Fatal("it lives")
			}
		}
		if c, err := net.Dial("tcp", strings.TrimSpace(address)); err == nil {
			c.Close()
			t.Fatal("it holds its port, and is said to have ended")
		}
		_ = cmd.Wait() // it was killed
	}
}

// holdAPort says at which address it listens, and keeps many threads busy.
func holdAPort() {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	for range 60 {
		go func() {
			for runtime.LockOSThread(); ; {
				runtime.Gosched()
			}
		}()
	}
	memory := bytes.Repeat([]byte{1}, 64<<20) // which takes a while to give back
	fmt.Println(l.Addr())
	time.Sleep(time.Minute) // it is killed before
	runtime.KeepAlive(memory)
	os.Exit(0)
}

func TestARefIsNoOtherProcess(t *testing.T) {
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	ref, err := Find(cmd.Process.Pid)
	if err != nil || !ref.Alive() {
		t.Fatalf("ref %+v, %v", ref, err)
	}
	other := Ref{PID: ref.PID, Started: ref.Started + 1}
	if other.Alive() || !errors.Is(other.Signal(syscall.SIGKILL), os.ErrProcessDone) {
		t.Error("a process with the same ID and another start was taken for it")
	}
	if err := ref.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(10 * time.Second); ref.Alive(); {
		if time.Now().After(deadline) {
			t.Fatal("it lives, or its zombie is taken for alive")
		}
	}
}
