package gpu

import "fmt"

// Class is what an XID error calls for, by the immediate action in NVIDIA's XID
// catalogue (as of October 2025).
type Class int

const (
	// ClassUnknown is for codes that the catalogue gave no action when this was
	// written.
	ClassUnknown Class = iota
	// ClassApplication is a fault of the process on the GPU, which stays usable.
	ClassApplication
	// ClassObserve is worth a note, and stops nothing.
	ClassObserve
	// ClassSecondary follows another error, which decides.
	ClassSecondary
	// ClassReset makes the GPU unusable until it is reset.
	ClassReset
	// ClassWorkflow makes the GPU unusable until an operator has found out more.
	ClassWorkflow
	// ClassLink is ClassWorkflow for NVLink errors: the GPUs on the other ends
	// of the links cannot work either.
	ClassLink
	// ClassReboot makes the whole node unusable until it is rebooted.
	ClassReboot
	// ClassRecoveryAction says that the driver asks for something else than
	// before, which must be read.
	ClassRecoveryAction
)

func (c Class) String() string {
	switch c {
	case ClassApplication:
		return "application fault"
	case ClassObserve:
		return "observe"
	case ClassSecondary:
		return "secondary"
	case ClassReset:
		return "reset GPU"
	case ClassWorkflow:
		return "workflow"
	case ClassLink:
		return "workflow of the link"
	case ClassReboot:
		return "reboot host"
	case ClassRecoveryAction:
		return "recovery action changed"
	default:
		return "unknown"
	}
}

const (
	xidDoubleBitECC   = 48
	xidOffTheBus      = 79
	xidRecoveryAction = 154
)

// ClassOf gives the class of an XID code.
func ClassOf(xid uint64) Class {
	switch xid {
	case 8, 11, 13, 31, 32, 68, 69, 94:
		return ClassApplication
	case 38, 43, 44, 63, 92, 121, 137, 157, 160, 161:
		return ClassObserve
	case 45:
		return ClassSecondary
	case 46, 62, 64, 95, 109, 110, 119, 120, 136, 140, 143, 155, 156, 158:
		return ClassReset
	case xidDoubleBitECC:
		return ClassWorkflow
	case 74, 144, 145, 146, 147, 148, 149, 150:
		return ClassLink
	case xidOffTheBus:
		return ClassReboot
	case xidRecoveryAction:
		return ClassRecoveryAction
	default:
		return ClassUnknown
	}
}

// xidMeanings are for the errors about which operators are told most.
var xidMeanings = map[uint64]string{
	46:  "GPU stopped processing",
	48:  "double-bit ECC error",
	62:  "internal micro-controller halt",
	64:  "row remapping could not be recorded",
	74:  "NVLink error",
	79:  "GPU has fallen off the bus",
	95:  "uncontained memory error",
	109: "context switch timeout",
	119: "GSP RPC timeout",
	120: "GSP error",
	140: "unrecovered ECC error",
	143: "GPU initialization failed",
	144: "NVLink 5 error", 145: "NVLink 5 error", 146: "NVLink 5 error", 147: "NVLink 5 error",
	148: "NVLink 5 error", 149: "NVLink 5 error", 150: "NVLink 5 error",
	154: "recovery action changed",
}

// xidName is "XID 119 (GSP RPC timeout)".
func xidName(xid uint64) string {
	if meaning, ok := xidMeanings[xid]; ok {
		return fmt.Sprintf("XID %d (%s)", xid, meaning)
	}
	return fmt.Sprintf("XID %d", xid)
}
