package keeper

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/gangd/gangd/internal/gpu"
	"github.com/gangd/gangd/plugins/driver/lane"
)

var twoGPUs = []lane.GPU{{Index: 3, UUID: "a"}, {Index: 4, UUID: "b"}}

type usageFunc func(uuid string) (gpu.Usage, error)

func (f usageFunc) Usage(uuid string) (gpu.Usage, error) { return f(uuid) }

func (f usageFunc) open() (gpuUsage, error) { return f, nil }

var errLost = errors.New("GPU is lost")

func TestWhoHoldsAGPU(t *testing.T) {
	for _, c := range []struct {
		of4  gpu.Usage
		err  error
		want string
	}{
		{of4: gpu.Usage{UsedMiB: 600}, want: ""},
		{of4: gpu.Usage{Processes: []gpu.Process{{PID: 42, MemoryMiB: 7}}}, want: "process 42 uses GPU 4 (b) with 7 MiB"},
		{of4: gpu.Usage{UsedMiB: 9000}, want: "9000 MiB of GPU 4 (b) are held by no process that NVML shows"},
		{err: errLost, want: "GPU 4 (b) could not be asked: GPU is lost"},
	} {
		usage := usageFunc(func(uuid string) (gpu.Usage, error) {
			if uuid == "b" {
				return c.of4, c.err
			}
			return gpu.Usage{}, nil
		})
		if got := holdersOf(usage.open, twoGPUs); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}

// TestAGPUThatCannotBeAskedIsNotFree: NVML fails for a while, or for good.
func TestAGPUThatCannotBeAskedIsNotFree(t *testing.T) {
	for name, c := range map[string]struct {
		answers time.Duration // when NVML begins to answer
		opens   time.Duration // when NVML can be opened
		want    string        // of the error
	}{
		"answers soon":     {answers: 2 * time.Second},
		"opens soon":       {opens: 2 * time.Second},
		"never answers":    {answers: time.Hour, want: "not known to be free after 10s: GPU 3 (a) could not be asked: GPU is lost; GPU 4"},
		"cannot be opened": {opens: time.Hour, want: "not known to be free after 10s: NVML cannot be asked who uses them: no driver"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				usage := usageFunc(func(string) (gpu.Usage, error) {
					if time.Since(began) < c.answers {
						return gpu.Usage{}, errLost
					}
					return gpu.Usage{}, nil
				})
				err := awaitFree(t.Context(), func() (gpuUsage, error) {
					if time.Since(began) < c.opens {
						return nil, errors.New("no driver")
					}
					return usage, nil
				}, twoGPUs)
				if c.want == "" {
					if took := time.Since(began); err != nil || took < 2*time.Second || took > 3*time.Second {
						t.Errorf("free after %v, %v; want as soon as NVML says so", took, err)
					}
				} else if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("got %v, want %q", err, c.want)
				}
			})
		})
	}
}

// TestNVMLThatDoesNotReturn is left behind.
func TestNVMLThatDoesNotReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		unstuck := make(chan struct{})
		usage := usageFunc(func(string) (gpu.Usage, error) { <-unstuck; return gpu.Usage{}, nil })
		err := awaitFree(t.Context(), usage.open, twoGPUs)
		if err == nil || !strings.Contains(err.Error(), "NVML does not answer") {
			t.Errorf("got %v", err)
		}
		close(unstuck)
	})
}

func TestAnOpenNVMLIsKept(t *testing.T) {
	open := openGPUs(lane.Node{NVML: gpu.NVMLMockDGXH100, MockNode: "n1"}, hclog.NewNullLogger())
	first, err := open()
	if err != nil {
		t.Fatal(err)
	}
	if again, err := open(); err != nil || again != first {
		t.Errorf("opened %v, then %v, %v", first, again, err)
	}
}

// TestWithoutNVMLNothingIsFree, where the GPUs are not simulated.
func TestWithoutNVMLNothingIsFree(t *testing.T) {
	open := openGPUs(lane.Node{}, hclog.NewNullLogger())
	if _, err := open(); err == nil {
		t.Skip("this machine has an NVIDIA driver")
	}
	if got := holdersOf(open, twoGPUs); !strings.Contains(got, "NVML cannot be asked who uses them: opening NVML: ") {
		t.Errorf("got %q", got)
	}
}
