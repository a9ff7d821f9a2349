package sagahttp

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/state"
)

// Getter gives a run's record. [saga.Orchestrator] and [saga.Operator] are Getters; the latter needs the operation in
// the key.
type Getter interface {
	Get(ctx context.Context, key saga.Key) (*state.Record, error)
}

var (
	_ Getter = (*saga.Orchestrator[int, int])(nil)
	_ Getter = (*saga.Operator)(nil)
)

// RunStatus is the content of [StatusHandler]'s answers.
type RunStatus struct {
	// Status of the run.
	Status state.Status `json:"status"`
	// CreatedAt is when it started.
	CreatedAt time.Time `json:"created_at"`
	// UpdatedAt is when something was last recorded.
	UpdatedAt time.Time `json:"updated_at"`
	// Result of a completed run.
	Result json.RawMessage `json:"result,omitempty"`
	// Problem is what [Handler] answers for a failed, reversed or blocked run.
	Problem *Problem `json:"problem,omitempty"`
	// Steps, with [WithSteps].
	Steps []StepStatus `json:"steps,omitempty"`
}

// StepStatus is where one step stands.
type StepStatus struct {
	// Name of the step.
	Name string `json:"name"`
	// Status of the step.
	Status state.StepStatus `json:"status"`
}

// StatusHandler tells where runs stand: GET answers with 200 and a [RunStatus], or with 404. It runs nothing. While the
// run goes on by itself, or needs another call, the answer has Retry-After.
//
// key makes the run's key of the request. It must join what the client says, such as a part of the path, to a tenant
// that the authentication tells, else every client reads every run. Its errors are answered like a request function's.
func StatusHandler(runs Getter, key func(*http.Request) (saga.Key, error), opts ...Option) http.Handler {
	h := &statusHandler{newConfig(opts), runs, key}
	if runs == nil {
		h.c.breaks(errors.New("sagahttp: StatusHandler: the Getter is nil"))
	}
	if key == nil {
		h.c.breaks(errors.New("sagahttp: StatusHandler: the key function is nil"))
	}
	h.c.tell()
	return h
}

type statusHandler struct {
	c    *config
	runs Getter
	key  func(*http.Request) (saga.Key, error)
}

var safeMethods = []string{http.MethodGet, http.MethodHead}

// ServeHTTP answers one request.
func (h *statusHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.c.serve(w, r, safeMethods, h.answer)
}

func (h *statusHandler) answer(r *http.Request) *answer {
	key, err := h.key(r)
	if err != nil {
		return h.c.refuse(err)
	}
	rec, err := h.runs.Get(r.Context(), key)
	if err != nil {
		return h.c.failedRun(key, err)
	}
	raw, err := state.Encode(h.statusOf(rec))
	if err != nil {
		return h.c.internal(err)
	}
	a := newAnswer(http.StatusOK, "application/json", append(raw, '\n'))
	if !rec.Status.Ended() && rec.Status != state.StatusBlocked {
		a.header.Set("Retry-After", retryAfter(time.Until(rec.NotBefore)))
	}
	return a
}

func (h *statusHandler) statusOf(rec *state.Record) RunStatus {
	s := RunStatus{Status: rec.Status, CreatedAt: rec.CreatedAt, UpdatedAt: rec.UpdatedAt, Problem: h.problemOf(rec)}
	if rec.Status == state.StatusCompleted {
		s.Result = rec.Response
	}
	if h.c.steps {
		for _, step := range rec.Steps {
			s.Steps = append(s.Steps, StepStatus{step.Name, step.Status})
		}
	}
	return s
}

// problemOf is the problem that Handler answers with for the same record.
func (h *statusHandler) problemOf(rec *state.Record) *Problem {
	k, ok := map[state.Status]kind{
		state.StatusFailed: kindFailed, state.StatusReversed: kindReversed, state.StatusBlocked: kindBlocked,
	}[rec.Status]
	if !ok {
		return nil
	}
	p := h.c.problem(k, runURN(rec.Key))
	if k == kindFailed && rec.Failure != nil {
		h.c.explain(&p, rec.Failure.Code, errors.New(rec.Failure.Message))
	}
	return &p
}
