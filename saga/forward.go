package saga

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v4"
	"go.uber.org/zap"

	"github.com/tsuzuki-go/tsuzuki/compensate"
	"github.com/tsuzuki-go/tsuzuki/internal/drive"
	"github.com/tsuzuki-go/tsuzuki/outbox"
	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/steps"
)

// forward runs the steps until the run rests or turns round. Nil means: look at the record.
func (h *holder) forward(run *runContext) error {
	for h.rec.Status == state.StatusInProgress {
		i := h.rec.Next()
		if i == len(h.rec.Steps) {
			return h.complete(run)
		}
		if h.trouble != nil && h.trouble.step == i {
			return h.fail(run, &stepWork{i: i, s: &h.p.steps[i], rec: h.rec.Steps[i]}, CodeWhen, h.trouble.err)
		}
		if err := h.step(run, i); err != nil {
			return err
		}
	}
	return nil
}

// stepWork is a step at hand: its entry as it will be recorded by the next write.
type stepWork struct {
	i   int
	s   *drive.Step
	rec state.StepRecord
	// messages of the attempt that is about to be recorded
	messages []outbox.Message
}

func (w *stepWork) change() state.StepChange {
	return state.StepChange{Index: w.i, StepRecord: w.rec}
}

// step brings one step to its record: done, failed, interrupted or blocked. Nil means: look at the record.
func (h *holder) step(run *runContext, i int) error {
	h.work = stepWork{i: i, s: &h.p.steps[i], rec: h.rec.Steps[i]}
	w := &h.work
	var waits backoff.BackOff
	policy := w.s.Retry.Or(h.e.retry)
	for n := 1; ; n++ {
		if over, err := h.before(run, w); over || err != nil {
			return err
		}
		err, over := h.attempt(run, w)
		if over {
			return err
		}
		// transient: the attempt is unknown
		class := classify(err)
		if cause := h.timeUp(run); cause != nil { // whatever it has returned, it was told to stop
			return h.interrupt(run, w, class, fmt.Errorf("%w: %w", cause, err))
		}
		if w.s.MaxAttempts > 0 && w.rec.Attempts >= w.s.MaxAttempts {
			return h.failProbing(run, w, h.codeOr(err, CodeMaxAttempts), err)
		}
		if waits == nil {
			waits = newBackOff(policy)
		}
		class.wait = waits.NextBackOff()
		if class.delayed {
			class.wait = class.delay
		}
		if n >= policy.PerRun || !h.maySleep(run, class) {
			return h.interrupt(run, w, class, err)
		}
		if err := w.noteAttempt(run, h.forwardWrite); err != nil || h.rec.Status != state.StatusInProgress {
			return err
		}
		h.e.tellStep(run, h.e.listener.StepRetried, StepEvent{Key: h.key, Step: w.s.Name, Attempt: w.rec.Attempts, Wait: class.wait, Err: err})
		if h.e.clk.Sleep(run, class.wait) != nil {
			return h.interrupt(run, w, class, err)
		}
	}
}

// noteAttempt records a failed attempt before the next one, so that whoever takes over has missed one at most: by a forward
// write or by one on the way back. It is as well when there is no room for it.
func (w *stepWork) noteAttempt(run *runContext, write func(*runContext, func(*state.Change)) error) error {
	err := write(run, func(ch *state.Change) { ch.Steps = append(ch.Steps, w.change()) })
	if errors.Is(err, state.ErrTooLarge) {
		return nil
	}
	return err
}

// timeUp is why the caller's time for calls is over; nil: it isn't.
func (h *holder) timeUp(run *runContext) error {
	if cause := causeOf(run); cause != nil {
		return cause
	}
	if !run.deadline.IsZero() && !time.Now().Before(h.callsEnd(run)) {
		return context.DeadlineExceeded
	}
	return nil
}

// before makes sure that an attempt may start. over means that the run has rested or turned round, or that the step is
// recorded: look at the record.
func (h *holder) before(run *runContext, w *stepWork) (over bool, err error) {
	back := compensate.MayGoBack(h.with(w), h.rec.Pivot)
	if c := h.cancelNoticed(); c != nil && back {
		return true, h.turn(run, w, func(ch *state.Change) { h.obey(ch, c) })
	}
	if w.s.AtMostOnce && w.rec.Status == state.StepStarted {
		return true, h.unresolved(run, w, nil)
	}
	if w.rec.Unknown {
		if over, err := h.probe(run, w); over || err != nil {
			return over, err
		}
		back = compensate.MayGoBack(h.with(w), h.rec.Pivot)
		if c := h.cancelNoticed(); c != nil && back {
			return true, h.turn(run, w, func(ch *state.Change) { h.obey(ch, c) })
		}
	}
	if h.pastDeadline() {
		return true, h.fail(run, w, CodeDeadline, fmt.Errorf("the deadline of %v has passed", h.p.deadline))
	}
	if w.s.MaxAttempts > 0 && w.rec.Attempts >= w.s.MaxAttempts {
		return true, h.fail(run, w, CodeMaxAttempts, fmt.Errorf("%d attempts were made", w.rec.Attempts))
	}
	if w.rec.Unknown && w.s.KeyValid > 0 && h.e.now().Sub(h.firstStart(w.i)) > w.s.KeyValid {
		return true, h.block(run, w, CodeKeyExpired, fmt.Errorf("its first attempt is older than the %v for which the participant remembers its key, and there is no Probe", w.s.KeyValid))
	}
	return h.ready(run, w)
}

// ready is whether there is time: the caller's, and the lease's.
func (h *holder) ready(run *runContext, w *stepWork) (over bool, err error) {
	if why := h.noTime(run, w); why != nil {
		return true, h.interrupt(run, w, errorClass{}, why)
	}
	if w.s.AtMostOnce && w.rec.Status == state.StepPending {
		unmarked := w.rec
		if over, err := h.markStarted(run, w); over || err != nil {
			return over, err
		}
		why := h.noTime(run, w)
		if why == nil && h.leaseLeft() <= 0 {
			why = errLeaseOver
		}
		if why == nil {
			return false, nil
		}
		w.rec = unmarked // the answer to the mark has come too late for the call
		return true, h.interrupt(run, w, errorClass{}, why)
	}
	if h.leaseLeft() <= 0 {
		err := h.forwardWrite(run, func(ch *state.Change) { ch.Steps = []state.StepChange{w.change()} })
		return err == nil && h.rec.Status != state.StatusInProgress, err
	}
	return false, nil
}

// noTime is why the caller's time doesn't allow for an attempt.
func (h *holder) noTime(run *runContext, w *stepWork) error {
	if cause := causeOf(run); cause != nil {
		return cause
	}
	return h.tooLate(run, w.s.Timeout)
}

// tooLate tells whether the caller's time leaves no room for a call of that timeout and the write behind it.
func (h *holder) tooLate(run *runContext, timeout time.Duration) error {
	if run.deadline.IsZero() {
		return nil
	}
	left := time.Until(run.deadline)
	switch {
	case left < timeout && timeout > h.e.margin:
		return &tooLittleTime{left, fmt.Sprintf("its Timeout is %v", timeout)}
	case time.Until(h.callsEnd(run)) <= 0:
		return &tooLittleTime{left, fmt.Sprintf("no call starts in its last %v", h.e.margin+h.e.grace())}
	}
	return nil
}

// tooLittleTime is an end of the caller's time that is near. It counts as [context.DeadlineExceeded].
type tooLittleTime struct {
	left time.Duration
	why  string
}

func (e *tooLittleTime) Error() string {
	return fmt.Sprintf("%v are left of the caller's time, and %s: give the call more time", max(0, e.left).Round(time.Millisecond), e.why)
}

func (e *tooLittleTime) Is(target error) bool { return target == context.DeadlineExceeded }

// attempt makes one call. over means that its outcome is recorded, or can't be; otherwise err is transient, and the
// step's entry says unknown.
func (h *holder) attempt(run *runContext, w *stepWork) (err error, over bool) {
	if !w.s.AtMostOnce {
		if w.rec.Attempts == 0 || w.rec.StartedAt.IsZero() {
			w.rec.StartedAt = h.e.now()
		}
		w.rec.Attempts++
	}
	h.e.tellStep(run, h.e.listener.StepStarted, StepEvent{Key: h.key, Step: w.s.Name, Attempt: w.rec.Attempts})
	c := h.newCall(w.i, drive.Do, w.rec.Attempts)
	began := h.e.clk.Mono()
	r, err := h.call(run, run, w.s, c, w.s.Do)
	messages, bad := c.Close()
	switch {
	case err != nil:
		return h.abandoned(w.s.Name, err), true
	case r.NotCalled:
		w.rec.Attempts--
		if w.s.AtMostOnce {
			w.rec.Status = state.StepPending
		}
		return h.interrupt(run, w, errorClass{}, r.Err), true
	case r.Err == nil && bad != nil:
		w.rec.Unknown = true
		return h.fail(run, w, CodeInvalidMessage, bad), true
	case r.Err == nil:
		w.messages = messages
		err := h.done(run, w, r)
		if ce := h.e.log.Check(zap.InfoLevel, "business_operation_executed"); ce != nil && err == nil {
			ce.Write(zap.String("key", h.runKey), zap.String("step", w.s.Name), zap.Int("attempt", w.rec.Attempts), zap.Duration("took", h.e.clk.Mono()-began))
		}
		return err, true
	}
	class := classify(r.Err)
	w.rec.Error = h.e.failure(w.s.Name, "", r.Err)
	switch {
	case class.permanent:
		if w.s.AtMostOnce {
			w.rec.Status = state.StepPending
		}
		w.rec.Unknown = w.rec.Unknown || class.stands
		return h.failProbing(run, w, "", r.Err), true
	case w.s.AtMostOnce:
		return h.unresolved(run, w, r.Err), true
	}
	w.rec.Unknown = true
	return r.Err, false
}

// failProbing fails a step for good. An unknown pivot that can be asked about is asked first: if it happened, there is
// no way back, and if it didn't, there is.
func (h *holder) failProbing(run *runContext, w *stepWork, code string, cause error) error {
	if w.s.Pivot && w.rec.Unknown && w.s.Probe != nil {
		if over, err := h.probe(run, w); over || err != nil {
			return err
		}
	}
	return h.fail(run, w, code, cause)
}

// markStarted commits the mark of an at-most-once step, before its one call.
func (h *holder) markStarted(run *runContext, w *stepWork) (over bool, err error) {
	started := w.rec
	started.Status, started.StartedAt = state.StepStarted, h.e.now()
	started.Attempts++
	err = h.forwardWrite(run, func(ch *state.Change) {
		if h.cancel != nil && compensate.MayGoBack(h.rec.Steps, h.rec.Pivot) {
			return // it turns round, so the call is not made
		}
		w.rec = started
		ch.Steps = []state.StepChange{w.change()}
	})
	return err != nil || h.rec.Status != state.StatusInProgress, err
}

// maySleep tells whether a wait ends within the caller's time. A delay that a participant has asked for must also end
// within the lease, since nobody else knows of it; otherwise the run had better be laid down until then.
func (h *holder) maySleep(run *runContext, class errorClass) bool {
	if class.delayed && class.wait > h.leaseLeft() {
		return false
	}
	return run.deadline.IsZero() || time.Until(run.deadline) > class.wait+h.e.margin
}

func (h *holder) pastDeadline() bool {
	if h.p.deadline <= 0 {
		return false
	}
	from := h.rec.CreatedAt
	for _, a := range h.rec.Audit {
		if a.Verb == verbRetry && a.At.After(from) {
			from = a.At
		}
	}
	return !h.e.now().Before(from.Add(h.p.deadline))
}

// with is the step entries with the one at hand as it will be recorded.
func (h *holder) with(w *stepWork) []state.StepRecord {
	if h.rec.Pivot == "" {
		return nil // nobody looks at them then
	}
	out := append([]state.StepRecord(nil), h.rec.Steps...)
	out[w.i] = w.rec
	return out
}

func (h *holder) codeOr(err error, otherwise string) string {
	if code := safely(func() string { return steps.Code(err) }); code != "" {
		return code
	}
	return otherwise
}

// errorClass is what an error asks for.
type errorClass struct {
	permanent bool
	stands    bool // permanent, and yet it had an effect
	delayed   bool
	delay     time.Duration
	wait      time.Duration // before the next attempt
}

// classify looks at a user's error, whose methods may panic; then it is transient.
func classify(err error) (c errorClass) {
	defer func() {
		if recover() != nil {
			c = errorClass{}
		}
	}()
	if yes, stands := permanent(err); yes {
		return errorClass{permanent: true, stands: stands}
	}
	c.delay, c.delayed = steps.Delay(err)
	return c
}

func newBackOff(p drive.Policy) backoff.BackOff {
	return backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(p.Initial), backoff.WithMaxInterval(p.Max), backoff.WithMultiplier(p.Multiplier),
		backoff.WithRandomizationFactor(max(0, p.Jitter)), backoff.WithMaxElapsedTime(0))
}

// abandoned is what the caller gets when a function is no longer waited for. Nothing is written: the lease lapses.
func (h *holder) abandoned(step string, err error) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if errors.Is(h.ended, ErrLeaseLost) {
		return h.ended
	}
	return &Error{Kind: ErrInterrupted, Key: h.key, Step: step, RetryAfter: h.lease, Err: err}
}

var errNoTime = errors.New("time ran out")
