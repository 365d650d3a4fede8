package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/gangd/gangd/internal/nomadplugin"
	"github.com/gangd/gangd/internal/runner"
	"github.com/gangd/gangd/plugins/driver/task"
)

// TestMain lets the test's program be all that the driver starts, keeper and
// runner; and a driver plugin that can be killed.
func TestMain(m *testing.M) {
	if len(os.Args) < 2 {
		os.Exit(m.Run())
	}
	switch os.Args[1] {
	case "keeper":
		main()
	case "runner":
		os.Exit(runTestRunner(os.Args[2]))
	case "plugin":
		os.Exit(runTestPlugin(os.Args[2]))
	default:
		os.Exit(m.Run())
	}
}

// runTestPlugin starts the task in a file, prints what Nomad would keep, and
// waits to be killed.
func runTestPlugin(path string) int {
	var start struct {
		Config []byte
		Task   nomadplugin.TaskConfig
	}
	content, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(content, &start)
	}
	driver := task.New("0.0.0-test", hclog.NewNullLogger())
	if err == nil {
		err = driver.SetConfig(start.Config)
	}
	if err == nil {
		var started nomadplugin.Started
		started, err = driver.StartTask(context.Background(), start.Task)
		os.Stdout.Write(append(started.State, '\n'))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	select {}
}

// runTestRunner is a runner with a character.
func runTestRunner(character string) int {
	switch character {
	case "stubborn": // ends only by force
		signal.Ignore(syscall.SIGTERM)
		return serve()
	case "parent": // its grandchild leaves session and process group, and outlives its parent
		child := exec.Command("/bin/sh", "-c", "trap '' TERM HUP; setsid sh -c 'trap \"\" TERM HUP; sleep 600; :' & sleep 0.05")
		if err := child.Run(); err != nil {
			return 1
		}
		return serve()
	case "hog":
		var held [][]byte
		for range 64 {
			block := make([]byte, 16<<20)
			for i := 0; i < len(block); i += 4096 {
				block[i] = 1
			}
			held = append(held, block)
		}
		return len(held)
	case "dies": // before it is ready
		fmt.Fprintln(os.Stderr, "the weights are on the moon")
		return 3
	case "plain": // speaks no protocol
		for _, name := range []string{"RANK", "WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT", "LOCAL_RANK", "CUDA_VISIBLE_DEVICES"} {
			fmt.Printf("%s=%s\n", name, os.Getenv(name))
		}
		return 0
	}
	return serve()
}

func serve() int {
	fmt.Println("runner up")
	if err := runner.Serve(context.Background(), program{}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

type program struct{}

func (program) Load(context.Context) (string, error) { return "digest-1", nil }

func (program) Run(ctx context.Context, order runner.Order, progress runner.Progress) (runner.Result, error) {
	var params struct{ Do string }
	if err := json.Unmarshal(order.Params, &params); err != nil {
		return runner.Result{}, err
	}
	fmt.Printf("running %s as rank %d of %d, master %s:%s\n", order.Gang, order.Rank, order.World, order.Env["MASTER_ADDR"], order.Env["MASTER_PORT"])
	progress.Stage(runner.StageDenoise)
	switch params.Do {
	case "fail":
		return runner.Result{}, &runner.Error{Class: "bad_prompt", Message: "it makes no sense"}
	case "wait":
		<-ctx.Done()
		return runner.Result{}, ctx.Err()
	case "chatter":
		for i := 0; ctx.Err() == nil; i++ {
			fmt.Printf("line %d\n", i)
			time.Sleep(2 * time.Millisecond)
		}
		return runner.Result{}, ctx.Err()
	}
	for i := 1; i <= 50; i++ {
		progress.Step(runner.Step{I: i, N: 50, Millis: 1, Finite: true})
	}
	if order.Rank != 0 {
		return runner.Result{}, nil
	}
	path := filepath.Join(order.OutputDir, "sea.mp4")
	if params.Do == "escape" {
		path = "/etc/hostname"
	} else if err := os.WriteFile(path, []byte("a red ball"), 0o644); err != nil {
		return runner.Result{}, err
	}
	return runner.Result{Path: path, ContentType: "video/mp4"}, nil
}
