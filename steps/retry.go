package steps

import (
	"time"

	"github.com/tsuzuki-go/tsuzuki/internal/drive"
)

// RetryPolicy is how transient errors are tried again within one run: exponentially growing waits with jitter
// (cenkalti/backoff). Zero fields are the defaults. Keyed literals only.
type RetryPolicy struct {
	_ struct{}

	// Initial wait. Default 100 ms.
	Initial time.Duration
	// Max is the longest wait. Default 10 s.
	Max time.Duration
	// Multiplier of the wait after each attempt; at least 1. Default 2.
	Multiplier float64
	// Jitter is the part of a wait by which it is randomly shorter or longer, up to 1; negative: none. Default 0.5.
	Jitter float64
	// PerRun is how many attempts one run makes before it is interrupted. Default 3; 1: no retry.
	PerRun int
}

func (p *RetryPolicy) policy() drive.Policy {
	if p == nil {
		return drive.Policy{}
	}
	return drive.Policy{Initial: p.Initial, Max: p.Max, Multiplier: p.Multiplier, Jitter: p.Jitter, PerRun: p.PerRun}
}

// Check tells what is wrong with the policy; nil when nothing is.
func (p RetryPolicy) Check() error {
	switch {
	case p.Initial < 0 || p.Max < 0:
		return errPolicy("negative wait")
	case p.Max > 0 && p.Max < p.Initial:
		return errPolicy("Max is shorter than Initial")
	case p.Multiplier != 0 && !(p.Multiplier >= 1):
		return errPolicy("Multiplier below 1")
	case !(p.Jitter <= 1):
		return errPolicy("Jitter over 1")
	case p.PerRun < 0:
		return errPolicy("negative PerRun")
	}
	return nil
}

type errPolicy string

func (e errPolicy) Error() string { return "retry policy: " + string(e) }
