package sagalambda

import (
	"context"
	"errors"
	"fmt"

	"go.uber.org/zap"

	"github.com/tsuzuki-go/tsuzuki/saga"
)

// errHeld: a record that was not run, because one before it that it must not overtake is to be delivered again.
var errHeld = errors.New("sagalambda: held back behind a record of the same group or key that is to be delivered again")

// kindOf is the kind of a run's error. The Kind of the outermost *saga.Error counts before whatever it wraps: an
// interruption may wrap the failure of another saga that a step has run.
func kindOf(err error) error {
	var e *saga.Error
	if errors.As(err, &e) && e != nil && e.Kind != nil {
		return e.Kind
	}
	return err
}

// settle decides about a record: nil acknowledges it.
func (c *config) settle(ctx context.Context, r Record) error {
	if r.Err == nil {
		return nil
	}
	var malformed *MalformedError
	switch kind := kindOf(r.Err); {
	case errors.Is(r.Err, errHeld):
		c.log.Debug("record_held", c.fields(r)...)
		return r.Err
	case errors.As(r.Err, &malformed):
		c.log.Error("record_malformed", c.fields(r)...)
		return c.disposed(ctx, c.malformed, r)
	case errors.Is(kind, saga.ErrFailed):
		c.log.Warn("record_failed", c.fields(r)...)
		return c.disposed(ctx, c.failed, r)
	case errors.Is(kind, saga.ErrBlocked):
		c.log.Error("record_blocked", c.fields(r)...)
		return c.disposed(ctx, c.blocked, r)
	}
	c.log.Warn("record_returned", c.fields(r)...)
	return r.Err
}

// disposed asks for the decision about a record. Without one, as after a panic, it is delivered again.
func (c *config) disposed(ctx context.Context, d Disposition, r Record) error {
	err := called("the disposition", func() error { return d(ctx, r) })
	c.told("disposition_failed", err, zap.String("record", r.ID))
	return err
}

// fields say what came of a record, and nothing of its content.
func (c *config) fields(r Record) []zap.Field {
	f := []zap.Field{zap.String("record", r.ID)}
	var malformed *MalformedError
	if errors.As(r.Err, &malformed) {
		return append(f, zap.String("reason", reason(malformed.Err)))
	}
	var e *saga.Error
	known := errors.As(r.Err, &e) && e != nil
	key := r.Key
	if known && e.Key.ID != "" { // with the operation
		key = e.Key
	}
	f = append(f, zap.String("key", key.String()))
	var m *mishap
	switch {
	case known && e.Kind != nil:
		return append(f, zap.NamedError("kind", e.Kind), zap.String("step", e.Step), zap.String("code", e.Code), zap.Duration("retry_after", e.RetryAfter))
	case errors.As(r.Err, &m):
		return append(f, zap.String("reason", m.text()))
	case errors.Is(r.Err, errHeld):
		return f
	}
	return append(f, zap.String("kind", fmt.Sprintf("%T", r.Err)))
}
