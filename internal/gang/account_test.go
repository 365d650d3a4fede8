package gang

import (
	"math"
	"testing"
	"time"
)

// Use that is charged in parts, early or late, comes to the same as the whole.
func TestUseDecays(t *testing.T) {
	const half = time.Hour
	start := time.UnixMilli(1_800_000_000_000)
	at := func(minutes int) time.Time { return start.Add(time.Duration(minutes) * time.Minute) }
	whole, parts := Account{}, Account{}
	whole.Charge(8, at(0), at(90), half)
	parts.Charge(8, at(0), at(20), half)
	parts.Charge(8, at(20), at(60), half)
	parts.Charge(8, at(60), at(90), half)
	for _, minutes := range []int{90, 100, 1000} {
		if a, b := whole.PastAt(at(minutes), half), parts.PastAt(at(minutes), half); math.Abs(a-b) > 1e-9 {
			t.Errorf("after %d minutes %f in one, %f in parts", minutes, a, b)
		}
	}
	if whole.GPUMillis != parts.GPUMillis || whole.GPUMillis != 8*90*60*1000 {
		t.Errorf("charged %d and %d GPU-milliseconds", whole.GPUMillis, parts.GPUMillis)
	}
	if got := (&Account{Past: 8, At: Millis(at(0))}).PastAt(at(60), half); math.Abs(got-4) > 1e-9 {
		t.Errorf("8 GPUs of the past are %f after a half-life", got)
	}
	if got := Decayed(8, at(0), at(100_000), half); math.Abs(got-8) > 1e-9 {
		t.Errorf("8 GPUs that are held for ever count %f", got)
	}
	if got := Decayed(8, at(5), at(0), half) + Decayed(8, at(0), at(5), 0) + whole.PastAt(at(90), 0); got != 0 {
		t.Errorf("a clock that goes back, or no half-life, gives %f", got)
	}
}

func TestDamagedAccounts(t *testing.T) {
	for _, text := range []string{
		`{"v":1,"tenant":"other","past_gpus":1,"at":1,"gpu_ms":1}`, `{"v":1,"tenant":"a","past_gpus":-1}`, `{"v":1,"tenant":"a","gpu_ms":-1}`, `{"v":2,"tenant":"a"}`, `[]`,
	} {
		if _, err := DecodeAccount("ledger/a", []byte(text)); err == nil {
			t.Errorf("%s is taken for an account of a", text)
		}
	}
	if a, err := DecodeAccount("ledger/a", Encode(Account{Version: 1, Tenant: "a", Past: 0.1, At: 5, GPUMillis: 7})); err != nil || a.Past != 0.1 {
		t.Error(a, err)
	}
}
