package keeper

import (
	"syscall"
	"time"

	"github.com/gangd/gangd/internal/link/linkpb"
	"github.com/gangd/gangd/internal/runner"
	"github.com/gangd/gangd/plugins/driver/lane"
	"github.com/gangd/gangd/plugins/driver/process"
)

// event is what happens to a lane.
type event interface{}

type (
	// ordered: gangd said something.
	ordered struct{ order *linkpb.KeeperOrder }
	// prepared: after the action prepare, the GPUs are free and, with a
	// runner that stays, its processes were started; or that failed.
	prepared struct{ err error }
	// said: a rank sent a message.
	said struct {
		local   int
		message runner.Message
	}
	// broke: a rank's process lives, but can no longer be spoken to.
	broke struct {
		local int
		err   error
	}
	// exited: a rank's process ended.
	exited struct {
		local       int
		exit        process.Exit
		outOfMemory bool
		lastLine    string // of its standard error
	}
	// dispatched: after the action dispatch, all ranks have the order to run.
	dispatched struct {
		attempt    runner.Attempt
		masterPort uint32 // of member 0
		err        error
	}
	// stored: after the action store.
	stored struct {
		attempt             runner.Attempt
		artifact, thumbnail *linkpb.Artifact
		err                 error
	}
	// stopped: the task is to end, by Nomad's wish or that of someone else on
	// the node.
	stopped struct {
		byNomad bool
		reason  string
		signal  syscall.Signal
		grace   time.Duration
	}
	// gone: after the action end, no process of the lane is left.
	gone struct{}
	// tick: time has passed.
	tick struct{}
)

// action is what has to be done, in the order of the list.
type action interface{}

type (
	// report tells gangd.
	report struct{ *linkpb.KeeperReport }
	// tell tells those who read `nomad alloc status`.
	tell struct{ message string }
	// prepare waits until nobody uses the GPUs, and starts the runner if it is
	// one that stays. Answered by prepared.
	prepare struct{}
	// dispatch hands a run, whose ranks are processes, to them. Answered by
	// dispatched.
	dispatch struct{ run *linkpb.Run }
	// store makes the results of a run durable. Answered by stored.
	store struct {
		run     *linkpb.Run
		results []runner.Result // by local rank
	}
	// end sends the signal to the lane's processes, and SIGKILL after grace; a
	// second end can only shorten it. Answered by gone.
	end struct {
		signal syscall.Signal
		grace  time.Duration
	}
	// finish ends the keeper. Nothing follows.
	finish struct{ exit lane.Exit }
)
