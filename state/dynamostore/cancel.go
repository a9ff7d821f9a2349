package dynamostore

import (
	"context"
	"fmt"
	"strconv"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tsuzuki-go/tsuzuki/state"
)

// RequestCancel stores the request; see [state.Store]. It reads the header first, to learn where the pivot is; the
// conditions on status and pivot are in the write itself.
func (s *Store) RequestCancel(ctx context.Context, key string, req state.CancelRequest) error {
	it, err := s.readHeader(ctx, "cancel", key)
	for range 16 {
		if err != nil {
			return err
		}
		h, err := s.look(it)
		switch {
		case err != nil:
			return err
		case h == nil:
			return fmt.Errorf("dynamostore: cancel run %s: %w", key, state.ErrNotFound)
		}
		store, err := h.rec.CheckCancel()
		if err != nil {
			return fmt.Errorf("dynamostore: cancel run %s: it is %s: %w", key, h.rec.Status, err)
		}
		if !store {
			return nil
		}
		var refusal bool
		if _, refusal, it, err = s.update(ctx, "cancel", key, s.cancelExpression(h.rec, &req), types.ReturnValueNone); err != nil {
			return err
		}
		if !refusal {
			return nil
		}
	}
	return fmt.Errorf("dynamostore: cancel run %s: its plan changes all the time", key)
}

func (s *Store) cancelExpression(r *state.Record, req *state.CancelRequest) *expression {
	n, e := &s.names, newExpression()
	e.set(e.name("#c", n.Cancel), e.value(":c", str(encodeJSON(toCancel(req)))))
	e.where("attribute_not_exists(#c)")
	e.name("#s", n.Status)
	e.value(":sa", str(string(state.StatusInProgress)))
	e.value(":sb", str(string(state.StatusInterrupted)))
	e.where("#s IN (:sa,:sb)")
	// The plan that the pivot was found in must still be the one.
	plan := encodePlan(r.Plan, r.Pivot)
	e.name("#p", n.Plan)
	if plan == "" {
		e.where("attribute_not_exists(#p)")
	} else {
		e.value(":p", str(plan))
		e.where("#p=:p")
	}
	if i := r.StepIndex(r.Pivot); r.Pivot != "" && i >= 0 {
		e.name("#st", n.Steps)
		e.value(":done", str(string(letters[state.StepDone])))
		e.where("NOT begins_with(" + e.child("#st", strconv.Itoa(i)) + ",:done)")
	}
	return e
}
