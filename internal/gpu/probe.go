package gpu

import (
	"encoding/binary"
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// RecoveryAction is what the driver asks for to mend a GPU, by NVML's numbers
// (nvmlDeviceGpuRecoveryAction_t).
type RecoveryAction int

const (
	// ActionUnread is not NVML's: the driver is too old to say.
	ActionUnread RecoveryAction = -1

	ActionNone          = RecoveryAction(nvml.GPU_RECOVERY_ACTION_NONE)
	ActionReset         = RecoveryAction(nvml.GPU_RECOVERY_ACTION_GPU_RESET)
	ActionReboot        = RecoveryAction(nvml.GPU_RECOVERY_ACTION_NODE_REBOOT)
	ActionDrainP2P      = RecoveryAction(nvml.GPU_RECOVERY_ACTION_DRAIN_P2P)
	ActionDrainAndReset = RecoveryAction(nvml.GPU_RECOVERY_ACTION_DRAIN_AND_RESET)
	ActionRecoverIMEX   = RecoveryAction(nvml.GPU_RECOVERY_ACTION_RECOVER_IMEX_DOMAIN)
	ActionBusReset      = RecoveryAction(nvml.GPU_RECOVERY_ACTION_BUS_RESET)
	ActionSystemReboot  = RecoveryAction(nvml.GPU_RECOVERY_ACTION_SYSTEM_REBOOT)
)

var actionNames = map[RecoveryAction]string{
	ActionUnread:        "unread",
	ActionNone:          "none",
	ActionReset:         "reset",
	ActionReboot:        "reboot",
	ActionDrainP2P:      "drain_p2p",
	ActionDrainAndReset: "drain_and_reset",
	ActionRecoverIMEX:   "recover_imex",
	ActionBusReset:      "bus_reset",
	ActionSystemReboot:  "system_reboot",
}

func (a RecoveryAction) String() string {
	if name, ok := actionNames[a]; ok {
		return name
	}
	return fmt.Sprintf("action_%d", int(a))
}

// Probe is what NVML says about a GPU's condition when asked.
type Probe struct {
	// Err is why the GPU does not answer, or nil.
	Err error
	// Action is what the driver asks for.
	Action RecoveryAction
	// RemapPending says that a row of memory was replaced, which takes effect
	// with the next reset; RemapFailed, that none was left to replace it.
	RemapPending, RemapFailed bool
}

// Probe asks a GPU for its condition.
func (l *Library) Probe(uuid string) Probe {
	device, err := l.handle(uuid)
	if err != nil {
		return Probe{Err: err, Action: ActionUnread}
	}
	// The memory's size is read from the driver each time, unlike the identity.
	if _, ret := device.GetMemoryInfo(); ret != nvml.SUCCESS {
		return Probe{Err: fmt.Errorf("reading the memory of GPU %s: %w", uuid, ret), Action: ActionUnread}
	}
	p := Probe{Action: recoveryAction(device)}
	if l.has("nvmlDeviceGetRemappedRows") {
		if _, _, pending, failed, ret := device.GetRemappedRows(); ret == nvml.SUCCESS {
			p.RemapPending, p.RemapFailed = pending, failed
		}
	}
	return p
}

func recoveryAction(device nvml.Device) RecoveryAction {
	values := []nvml.FieldValue{{FieldId: nvml.FI_DEV_GET_GPU_RECOVERY_ACTION}}
	if ret := device.GetFieldValues(values); ret != nvml.SUCCESS || nvml.Return(values[0].NvmlReturn) != nvml.SUCCESS {
		return ActionUnread
	}
	return RecoveryAction(binary.NativeEndian.Uint32(values[0].Value[:4]))
}
