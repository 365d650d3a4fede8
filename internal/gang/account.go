package gang

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// Account is what Consul keeps of a tenant under ledger/<tenant>: what its
// attempts that have ended used. What those use that hold GPUs is known from
// their lanes.
type Account struct {
	Version int    `json:"v"`
	Tenant  string `json:"tenant"`
	// Past is the decayed use of the lanes that were charged, in GPUs, as of At:
	// each GPU that was held from a to b counts 2^(-(At-b)/h) - 2^(-(At-a)/h) for
	// the half-life h, so that who holds r GPUs for long approaches r.
	Past float64 `json:"past_gpus"`
	// At is in Unix milliseconds.
	At int64 `json:"at"`
	// GPUMillis is all that was charged, without decay.
	GPUMillis int64 `json:"gpu_ms"`
}

// Charge adds the use of GPUs that were held from one time to another, which is
// now.
func (a *Account) Charge(gpus int, from, to time.Time, halfLife time.Duration) {
	a.Past = a.PastAt(to, halfLife) + Decayed(gpus, from, to, halfLife)
	a.At = max(a.At, Millis(to))
	a.GPUMillis += int64(gpus) * max(0, to.Sub(from).Milliseconds())
}

// PastAt is the decayed use as of a later time.
func (a *Account) PastAt(now time.Time, halfLife time.Duration) float64 {
	if halfLife <= 0 {
		return 0
	}
	return a.Past * math.Exp2(-max(0, now.Sub(time.UnixMilli(a.At)).Seconds())/halfLife.Seconds())
}

// Decayed is what GPUs count at a time that have been held since another, in
// GPUs.
func Decayed(gpus int, since, now time.Time, halfLife time.Duration) float64 {
	if halfLife <= 0 {
		return 0
	}
	return float64(gpus) * -math.Expm1(-math.Ln2*max(0, now.Sub(since).Seconds())/halfLife.Seconds())
}

// AccountKey is where a tenant's account lies.
func AccountKey(tenant string) string { return "ledger/" + tenant }

// DecodeAccount reads a tenant's account.
func DecodeAccount(key string, value []byte) (*Account, error) {
	a := new(Account)
	return a, decode(key, value, a)
}

func (a *Account) damage(key string) error {
	switch {
	case AccountKey(a.Tenant) != key:
		return fmt.Errorf("it is of tenant %q", a.Tenant)
	case a.Past < 0 || math.IsNaN(a.Past) || a.GPUMillis < 0:
		return errors.New("nobody uses less than nothing")
	}
	return nil
}
