package gang

import "errors"

// ErrNotWaiting is wrapped where what is asked for can be had of gangs that wait
// alone.
var ErrNotWaiting = errors.New("that is for gangs that wait")

// Outlook is a gang with what is to be expected of it.
type Outlook struct {
	Status
	// Waiting counts the gangs that wait, and Ahead are the first of those that
	// are before this one in the order, at most MaxAhead.
	Waiting int     `json:"waiting,omitempty"`
	Ahead   []Ahead `json:"ahead,omitempty"`
	// Starts is when a gang that waits should start, where it holds a future
	// start, and Ends when one that runs should be over, by its estimate; in Unix
	// milliseconds, 0 where that is not known.
	Starts int64 `json:"starts,omitempty"`
	Ends   int64 `json:"ends,omitempty"`
	// Protected is until when one that runs is not stopped for others, in Unix
	// milliseconds; 0 where it may be.
	Protected int64 `json:"protected,omitempty"`
}

// MaxAhead bounds the gangs that an outlook names.
const MaxAhead = 5

// Ahead is a gang that is before another.
type Ahead struct {
	ID     ID     `json:"id"`
	Tier   string `json:"tier"`
	Tenant string `json:"tenant"`
	GPUs   int    `json:"gpus"`
	Code   Code   `json:"code,omitempty"`
}

// Shares says who has how much of the cluster.
type Shares struct {
	// Capacity is the number of GPUs in order, Running those that gangs hold, and
	// Free those that none holds.
	Capacity int `json:"capacity"`
	Running  int `json:"running"`
	Free     int `json:"free"`
	// Tenants are by name, Tiers by priority, highest first.
	Tenants []TenantShare `json:"tenants"`
	Tiers   []TierShare   `json:"tiers"`
}

// TenantShare is what one tenant has, wants, and is entitled to, in GPUs.
type TenantShare struct {
	Name       string  `json:"name"`
	Weight     float64 `json:"weight"`
	Guaranteed int     `json:"guaranteed,omitempty"`
	MaxGPUs    int     `json:"max_gpus,omitempty"`
	Running    int     `json:"running"`
	// Waiting counts its gangs that wait, and Wanted the GPUs that these prefer;
	// gangs that are held count in neither.
	Waiting int `json:"waiting"`
	Wanted  int `json:"wanted"`
	// Entitled is its weighted max-min share of the capacity, over what all
	// tenants run and want: nobody is given more than that, or than its cap, and
	// what one leaves goes to the others by weight.
	Entitled float64 `json:"entitled"`
	// Past is its use that fades. Of two tenants of a tier goes first who has less
	// Running and Past for its weight.
	Past float64 `json:"past"`
	// GPUMillis is all that was charged for gangs that have left their GPUs.
	GPUMillis int64 `json:"gpu_ms"`
}

// TierShare is what one tier has and wants.
type TierShare struct {
	Name     string  `json:"name"`
	Priority int     `json:"priority"`
	MinShare float64 `json:"min_share,omitempty"`
	// CreditGPUSeconds is what it has saved up of its min_share.
	CreditGPUSeconds float64 `json:"credit_gpu_s,omitempty"`
	Running          int     `json:"running"`
	Waiting          int     `json:"waiting"`
	Wanted           int     `json:"wanted"`
	// OldestMillis is how long the one that came first has waited.
	OldestMillis int64 `json:"oldest_ms,omitempty"`
	// Of the last Starts, the waits from acceptance: their median, and how many
	// were within TargetMillis.
	Starts       int   `json:"starts,omitempty"`
	MedianMillis int64 `json:"median_wait_ms,omitempty"`
	TargetMillis int64 `json:"target_wait_ms,omitempty"`
	Met          int   `json:"met,omitempty"`
}
