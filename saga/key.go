package saga

import (
	"context"

	"github.com/tsuzuki-go/tsuzuki/state"
)

// Key names a run. Tenant and ID are the caller's; Operation is filled in by the orchestrator.
type Key = state.Key

// ActorContext returns a context that names who acts, for the audit lines of an operator's verbs.
func ActorContext(ctx context.Context, who string) context.Context {
	return state.ActorContext(ctx, who)
}

// Runner is the interface of [Orchestrator.Run], for adapters and fakes.
type Runner[In, Out any] interface {
	Run(ctx context.Context, key Key, in In, opts ...RunOption) (Out, error)
}
