package dispatch

import (
	"errors"
	"fmt"

	"github.com/tsuzuki-go/tsuzuki/outbox"
)

// Routes tell where topics go.
type Routes struct {
	// Default is the target of every topic that ByTopic doesn't name; empty: such messages are refused.
	Default string
	// ByTopic are the targets of topics.
	ByTopic map[string]string
}

// ErrNoTarget is the refusal of a message whose topic has no target.
var ErrNoTarget = errors.New("the topic has no target")

// Target is where the topic goes.
func (r Routes) Target(topic string) (string, error) {
	if t, ok := r.ByTopic[topic]; ok {
		return t, nil
	}
	if r.Default == "" {
		return "", fmt.Errorf("%w: topic %q", ErrNoTarget, topic)
	}
	return r.Default, nil
}

// Targets are all targets, each once. An error if there are none, or an empty one.
func (r Routes) Targets() ([]string, error) {
	seen := map[string]bool{}
	var out []string
	add := func(t string) {
		if !seen[t] {
			seen[t] = true
			out = append(out, t)
		}
	}
	if r.Default != "" {
		add(r.Default)
	}
	for topic, t := range r.ByTopic {
		if topic == "" || t == "" {
			return nil, fmt.Errorf("topic %q goes to %q: neither may be empty", topic, t)
		}
		add(t)
	}
	if len(out) == 0 {
		return nil, errors.New("there is no target: name one for all topics or one per topic")
	}
	return out, nil
}

// ByTarget calls send for the entries of each target, in the order in which the targets come up, and gathers what comes
// of it. Targets are independent: a failure of one doesn't keep the others from being tried.
func ByTarget[T any](entries map[string][]Entry[T], order []string, send func(target string, entries []Entry[T]) ([]outbox.Result, error)) ([]outbox.Result, error) {
	var results []outbox.Result
	var errs []error
	for _, target := range order {
		res, err := send(target, entries[target])
		results = append(results, res...)
		if err != nil {
			errs = append(errs, err)
		}
	}
	return results, errors.Join(errs...)
}
