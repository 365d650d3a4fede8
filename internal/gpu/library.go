package gpu

import (
	"errors"
	"fmt"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/hashicorp/go-hclog"
)

// What Config.NVML may say.
const (
	NVMLReal        = "real"
	NVMLMockDGXH100 = "mock:dgxh100"
)

// Config selects an NVML. Errors about it name the fields as the plugins'
// configuration spells them: nvml, mock_node, mock_gpus, mock_island_gpus,
// fault_file.
type Config struct {
	// NVML is "real", which is the default, or the name of a simulated server.
	NVML string
	// Mock says more about a simulated server. It must be zero for a real one.
	Mock Mock
	// Log is told what goes wrong without failing; nil for nobody.
	Log hclog.Logger
}

// Mock is what can be set about a simulated server.
type Mock struct {
	// Node seeds the UUIDs: nodes of different names have different GPUs, and
	// every process that gives the same name sees the same ones.
	Node string
	// GPUs is how many the server has, 1 to 8; 0 means 8.
	GPUs int
	// IslandGPUs is how many GPUs full-bandwidth NVLink joins, in index order;
	// 0 means all of them.
	IslandGPUs int
	// FaultFile is the path of the file described at the package; empty for
	// none. It need not exist yet.
	FaultFile string
}

// Validate tells what is wrong with the configuration, before anything is
// opened.
func (c Config) Validate() error {
	switch c.NVML {
	case "", NVMLReal:
		if c.Mock != (Mock{}) {
			return fmt.Errorf("mock_node, mock_gpus, mock_island_gpus and fault_file need a simulated NVML: set nvml = %q, or remove them", NVMLMockDGXH100)
		}
		return nil
	case NVMLMockDGXH100:
		return c.Mock.validate()
	default:
		return fmt.Errorf("nvml = %q: no such NVML; known are %q and %q", c.NVML, NVMLReal, NVMLMockDGXH100)
	}
}

func (m Mock) validate() error {
	if m.Node == "" {
		return errors.New("mock_node is empty: give every simulated node a name of its own, from which the UUIDs of its GPUs follow")
	}
	if m.GPUs < 0 || m.GPUs > dgxGPUs {
		return fmt.Errorf("mock_gpus = %d: a simulated server has 1 to %d GPUs", m.GPUs, dgxGPUs)
	}
	if m.IslandGPUs < 0 || m.IslandGPUs > dgxGPUs {
		return fmt.Errorf("mock_island_gpus = %d: an NVLink island has 1 to %d GPUs", m.IslandGPUs, dgxGPUs)
	}
	return nil
}

// Library is an open NVML. Its methods may be called from several goroutines;
// against a real driver each can take long, or for ever, while a GPU hangs.
type Library struct {
	api  nvml.Interface
	log  hclog.Logger
	real bool
}

// Open opens the NVML that the configuration names. It fails where the
// configuration is invalid, and where the driver's library cannot be loaded or
// finds no driver, with nvml.ERROR_LIBRARY_NOT_FOUND and
// nvml.ERROR_DRIVER_NOT_LOADED in the chain.
func Open(c Config) (*Library, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	log := c.Log
	if log == nil {
		log = hclog.NewNullLogger()
	}
	if c.NVML == NVMLMockDGXH100 {
		return &Library{api: newMockServer(c.Mock, log), log: log}, nil
	}
	l := &Library{api: nvml.New(), log: log, real: true}
	if ret := l.api.Init(); ret != nvml.SUCCESS {
		return nil, openError(ret)
	}
	return l, nil
}

func openError(ret nvml.Return) error {
	switch ret {
	case nvml.ERROR_LIBRARY_NOT_FOUND:
		return fmt.Errorf("opening NVML: libnvidia-ml.so.1 is not in the dynamic linker's search path: install the NVIDIA driver's compute libraries (and run ldconfig), or set nvml = %q to simulate a server: %w",
			NVMLMockDGXH100, ret)
	case nvml.ERROR_DRIVER_NOT_LOADED:
		return fmt.Errorf("opening NVML: libnvidia-ml.so.1 is there, but the nvidia kernel module is not loaded: run modprobe nvidia: %w", ret)
	case nvml.ERROR_LIB_RM_VERSION_MISMATCH:
		return fmt.Errorf("opening NVML: libnvidia-ml.so.1 and the nvidia kernel module are of different versions: reboot after the driver's upgrade: %w", ret)
	default:
		return fmt.Errorf("opening NVML: nvmlInit failed; see what nvidia-smi says: %w", ret)
	}
}

// Close ends the use of NVML.
func (l *Library) Close() error {
	if ret := l.api.Shutdown(); ret != nvml.SUCCESS {
		return fmt.Errorf("closing NVML: %w", ret)
	}
	return nil
}

// Real tells whether the GPUs exist, so that they have device files.
func (l *Library) Real() bool { return l.real }

// DriverVersion is the NVIDIA driver's, such as "550.54.15".
func (l *Library) DriverVersion() (string, error) {
	version, ret := l.api.SystemGetDriverVersion()
	if ret != nvml.SUCCESS {
		return "", fmt.Errorf("reading the driver's version from NVML: %w", ret)
	}
	return version, nil
}

// has tells whether the loaded library has a function that older drivers lack.
// Calling one that is missing would end the process.
func (l *Library) has(symbol string) bool {
	return l.api.Extensions().LookupSymbol(symbol) == nil
}

// handle finds a GPU by its UUID. Handles are not kept, because a GPU that was
// lost and comes back has a new one.
func (l *Library) handle(uuid string) (nvml.Device, error) {
	device, ret := l.api.DeviceGetHandleByUUID(uuid)
	if ret != nvml.SUCCESS {
		return nil, fmt.Errorf("asking NVML for GPU %s: %w", uuid, ret)
	}
	return device, nil
}

// text is a string in a C array of fixed size.
func text(chars []int8) string {
	var b strings.Builder
	for _, c := range chars {
		if c == 0 {
			break
		}
		b.WriteByte(byte(c))
	}
	return b.String()
}

// absent tells whether a function answered that this GPU or driver does not
// have what was asked for, in contrast to having failed or refused.
func absent(ret nvml.Return) bool {
	return ret == nvml.ERROR_NOT_SUPPORTED || ret == nvml.ERROR_FUNCTION_NOT_FOUND
}
