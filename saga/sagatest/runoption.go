package sagatest

import (
	"encoding/json"
	"fmt"

	"github.com/tsuzuki-go/tsuzuki/steps"
)

// RunOption is an option of [NewRun]. Only this package makes them.
type RunOption interface{ applyRun(*runConfig) error }

type runOption func(*runConfig) error

func (o runOption) applyRun(c *runConfig) error { return o(c) }

type runConfig struct {
	outputs  []json.RawMessage
	index    map[any]int
	attempts int
	resumed  bool
	cause    error
}

func (c *runConfig) add(origin any, name string, output json.RawMessage) error {
	if _, twice := c.index[origin]; twice {
		return fmt.Errorf("step %s: its output is given twice", name)
	}
	c.index[origin] = len(c.outputs)
	c.outputs = append(c.outputs, output)
	return nil
}

// Given is the recorded output of an earlier step, for the Output and Lookup of the step at hand. It is encoded and
// decoded again, as in a real run. A step without a result is given steps.None{}.
func Given[In, Out any](step *steps.Step[In, Out], output Out) RunOption {
	return runOption(func(c *runConfig) error {
		if step == nil {
			return fmt.Errorf("Given: the step is nil")
		}
		raw, err := step.Snapshot().Check(output)
		if err != nil {
			return fmt.Errorf("Given: step %s: %w", step.Name(), err)
		}
		return c.add(step, step.Name(), raw)
	})
}

// Skipped is an earlier step that was skipped, or done without a recorded result: its Lookup says false, its Output
// panics.
func Skipped[In, Out any](step *steps.Step[In, Out]) RunOption {
	return runOption(func(c *runConfig) error {
		if step == nil {
			return fmt.Errorf("Skipped: the step is nil")
		}
		return c.add(step, step.Name(), nil)
	})
}

// AfterAttempts says how many attempts there were before: the next one is number n+1, and the run counts as resumed when n is
// not 0.
func AfterAttempts(n int) RunOption {
	return runOption(func(c *runConfig) error {
		if n < 0 {
			return fmt.Errorf("AfterAttempts(%d): must not be negative", n)
		}
		c.attempts, c.resumed = n, n > 0
		return nil
	})
}

// Because is why the run goes backwards: what a compensation sees as the run's Cause.
func Because(cause error) RunOption {
	return runOption(func(c *runConfig) error {
		if cause == nil {
			return fmt.Errorf("Because(nil)")
		}
		c.cause = cause
		return nil
	})
}
