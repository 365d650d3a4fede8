package gpu

import "fmt"

// reset says how to reset a GPU. The driver refuses while any process, and so
// the device plugin, has it open.
func reset(g GPU) string {
	return fmt.Sprintf("drain the node, stop its Nomad client and run nvidia-smi --gpu-reset -i %s", g.PCIBusID)
}

func faultOf(g GPU, r Record) fault {
	name := xidName(r.XID)
	switch r.Class {
	case ClassReboot:
		return nodeFault(g, fmt.Sprintf("GPU %d reported %s", g.Index, name))
	case ClassLink:
		return fault{
			scope: scopeIsland,
			own: fmt.Sprintf("GPU %d reported %s: check its links with nvidia-smi nvlink -s and the fabric manager's log, then %s.",
				g.Index, name, reset(g)),
			peers: fmt.Sprintf("GPU %d on the same NVLink island reported %s; this GPU is offered again when that one has recovered.", g.Index, name),
		}
	case ClassWorkflow:
		return fault{own: fmt.Sprintf("GPU %d reported %s: follow NVIDIA's workflow for it (run the field diagnostics where it comes back), then %s.",
			g.Index, name, reset(g))}
	case ClassReset:
		return fault{own: fmt.Sprintf("GPU %d reported %s: %s.", g.Index, name, reset(g))}
	default:
		// A code that is not in the table may be harmless or fatal. Taking the
		// GPU out until probes have cleared it costs seconds of one GPU; leaving
		// a broken one in costs gang after gang.
		return fault{own: fmt.Sprintf("GPU %d reported %s, which is not in the table of known errors: look it up in NVIDIA's XID catalogue; the GPU is offered again when NVML finds it sound.",
			g.Index, name)}
	}
}

func nodeFault(g GPU, what string) fault {
	return fault{
		scope: scopeNode,
		own:   what + ": reboot the node.",
		peers: what + ", which makes all GPUs of the node unusable: reboot the node.",
	}
}

func faultOfSilence(g GPU, err error) fault {
	return fault{own: fmt.Sprintf("GPU %d does not answer: %v. See nvidia-smi and the kernel's log for XID errors; %s, and reboot the node where that does not help.",
		g.Index, err, reset(g))}
}

func faultOfUnreadAction(g GPU) fault {
	return fault{own: fmt.Sprintf("GPU %d reported %s, but the driver does not say to what: see nvidia-smi -q -i %s.",
		g.Index, xidName(xidRecoveryAction), g.PCIBusID)}
}

// faultOfAction obeys the recovery action that was read.
func faultOfAction(g GPU, action RecoveryAction) fault {
	asks := func(what string) string { return fmt.Sprintf("GPU %d: the driver asks for %s", g.Index, what) }
	switch action {
	case ActionReboot, ActionSystemReboot:
		return nodeFault(g, asks("a reboot (recovery action "+action.String()+")"))
	case ActionReset, ActionDrainAndReset, ActionBusReset:
		return fault{own: asks("a reset (recovery action "+action.String()+")") + ": " + reset(g) + "."}
	case ActionDrainP2P:
		return fault{own: asks("an end of all peer-to-peer traffic with it (recovery action drain_p2p)") + ": end the processes on the GPUs that it is linked to."}
	case ActionRecoverIMEX:
		return fault{own: asks("a recovery of its IMEX domain (recovery action recover_imex)") + ": restart nvidia-imex on the domain's nodes."}
	default:
		return fault{own: asks("recovery action "+action.String()) + ", which is not known here: see nvidia-smi -q -i " + g.PCIBusID + "."}
	}
}

func condemnation(g GPU) string {
	return fmt.Sprintf(" NVML finds no spare memory rows left on GPU %d: have the board replaced.", g.Index)
}
