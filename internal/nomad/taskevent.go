package nomad

import (
	"strings"

	"github.com/hashicorp/nomad/api"
)

// taskEvent is a line of what a client did with a task.
type taskEvent struct {
	Type string
	// Message is, of an event of the type Terminated, the driver's own word.
	Message        string
	DisplayMessage string
	FailsTask      bool
}

// maxEventBytes bounds what is told of an event: it is part of a sentence.
const maxEventBytes = 320

// grpcPrefix begins what a driver's plugin said, as gRPC hands it on.
const grpcPrefix = "rpc error: code = Unknown desc = "

// String is one line, whatever the client wrote.
func (e taskEvent) String() string {
	s := strings.Join(strings.Fields(e.Type+": "+strings.ReplaceAll(e.DisplayMessage, grpcPrefix, "")), " ")
	if len(s) > maxEventBytes {
		s = strings.ToValidUTF8(s[:maxEventBytes], "") + "…"
	}
	return s
}

// weight is how much an event says of why a task ended. An event fails the task
// also where it only notes that it is not started again.
func (e taskEvent) weight() int {
	switch e.Type {
	case api.TaskFailedValidation, api.TaskDriverFailure, api.TaskSetupFailure, api.TaskArtifactDownloadFailed, taskHookFailed:
		return 3
	case api.TaskNotRestarting, api.TaskKilled, api.TaskReceived, api.TaskSetup, api.TaskBuildingTaskDir,
		api.TaskDownloadingArtifacts, api.TaskStarted, api.TaskRestarting:
		return 0
	case api.TaskKilling: // says what a template or Vault failed in, too
		if e.FailsTask {
			return 3
		}
		return 0
	case api.TaskTerminated:
		if e.Message == "" {
			return 1 // an exit code
		}
	}
	return 2
}

// taskHookFailed is the type of an event that a step before the start failed;
// Nomad's API has no name for it.
const taskHookFailed = "Task hook failed"

// telling is the last of those that say most.
func telling(events []taskEvent) taskEvent {
	var best taskEvent
	for i, e := range events {
		if i == 0 || e.weight() >= best.weight() {
			best = e
		}
	}
	return best
}
