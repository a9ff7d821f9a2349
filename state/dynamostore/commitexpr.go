package dynamostore

import (
	"strconv"

	"github.com/tsuzuki-go/tsuzuki/state"
)

// expression is the whole update.
func (w *commitWrite) expression() (*expression, error) {
	e := newExpression()
	w.fence(e)
	w.header(e)
	if err := w.steps(e); err != nil {
		return nil, err
	}
	w.additions(e)
	w.outbox(e)
	w.index(e)
	return e, nil
}

func (w *commitWrite) fence(e *expression) {
	n, ch := &w.s.names, w.ch
	e.name("#o", n.Owner)
	e.name("#v", n.Revision)
	e.name("#s", n.Status)
	if ch.IfOwner == "" {
		e.where("attribute_not_exists(#o) AND #v=:fv")
	} else {
		e.value(":fo", str(ch.IfOwner))
		e.where("#o=:fo AND #v=:fv")
	}
	e.value(":fv", num(ch.IfRevision))
	f := fromStatuses[ch.Status]
	for i, name := range f.names {
		e.value(name, f.values[i])
	}
	e.where(f.in)
	if ch.IfNoCancel {
		e.where("attribute_not_exists(" + e.name("#c", n.Cancel) + ")")
	}
	if ch.Status == state.StatusCompensating { // perhaps from an end, and then perhaps expired
		e.value(":now", num(w.s.clock.Now().Unix()))
		e.where("(attribute_not_exists(" + e.name("#e", n.Expiration) + ") OR #e > :now)")
	}
}

// header sets what every change has.
func (w *commitWrite) header(e *expression) {
	n, ch := &w.s.names, w.ch
	e.set("#v", e.value(":v", num(ch.IfRevision+1)))
	e.set("#s", e.value(":s", str(string(ch.Status))))
	e.set(e.name("#u", n.UpdatedAt), e.value(":u", num(ch.UpdatedAt.UnixMilli())))
	e.set(e.name("#w", n.WriteID), e.value(":w", str(ch.WriteID)))
	e.set(e.name("#n", n.Run), e.value(":n", num(int64(ch.Runs))))
	e.text("#o", ":o", n.Owner, ch.Owner)
	e.text("#es", ":es", n.EndsAs, string(ch.EndsAs))
	e.text("#cs", ":cs", n.CurrentStep, ch.CurrentStep)
	e.milli("#l", ":l", n.Lease, ch.LeaseUntil)
	e.milli("#nb", ":nb", n.NotBefore, ch.NotBefore)
	e.name("#e", n.Expiration)
	if ch.ExpiresAt.IsZero() {
		e.remove("#e")
	} else {
		e.set("#e", e.value(":e", num(state.CeilSecond(ch.ExpiresAt).Unix())))
	}
	failure := ""
	if ch.Failure != nil {
		failure = encodeJSON(toFailure(ch.Failure))
	}
	e.text("#f", ":f", n.Failure, failure)
}

// steps sets the steps, and makes sure that none is left out before them.
func (w *commitWrite) steps(e *expression) error {
	if len(w.ch.Steps) == 0 {
		return nil
	}
	e.name("#st", w.s.names.Steps)
	plan, b := w.ch.Plan, base{}
	if w.known {
		b = w.hint.base
		if plan == nil {
			plan = w.hint.plan
		}
	}
	there := 0 // so many steps are known to be there
	for i := range w.ch.Steps {
		st := &w.ch.Steps[i]
		if st.Index > there {
			e.where("attribute_exists(" + e.child("#st", strconv.Itoa(st.Index-1)) + ")")
		}
		there = max(there, st.Index+1)
		if superseded(w.ch.Steps, i) {
			continue
		}
		named := st.Index >= len(plan) || plan[st.Index] != st.Name
		v, err := encodeStep(&st.StepRecord, b, named, w.outputs[i])
		if err != nil {
			return err
		}
		name, value := e.fresh()
		e.set("#st."+e.name(name, strconv.Itoa(st.Index)), e.value(value, str(v)))
	}
	return nil
}

// additions sets what few changes have.
func (w *commitWrite) additions(e *expression) {
	n, ch := &w.s.names, w.ch
	if ch.Plan != nil {
		e.text("#p", ":p", n.Plan, encodePlan(ch.Plan, ch.Pivot))
	}
	if ch.Response != nil {
		e.set(e.name("#r", n.Response), e.value(":r", payloadValue(ch.Response, w.response)))
	}
	if ch.DropCancel {
		e.remove(e.name("#c", n.Cancel))
	}
	if len(ch.Audit) > 0 {
		e.append("#a", ":a", n.Audit, encodeAudit(ch.Audit))
	}
}

func (w *commitWrite) outbox(e *expression) {
	n, ch := &w.s.names, w.ch
	if len(ch.Messages) == 0 && ch.Claim == nil {
		return
	}
	e.name("#ob", n.Outbox)
	b := base{}
	if w.known {
		b = w.hint.base
	}
	for i := range ch.Messages {
		m := &ch.Messages[i]
		name, value := e.fresh()
		v := encodeMessage(m, w.sequence(i), b, "", w.bodies[i])
		e.set("#ob."+e.name(name, messageKey(ch.Key, m.ID)), e.value(value, str(v)))
	}
	if ch.Claim == nil {
		return
	}
	token, until := "#ob."+e.name("#t", claimToken), "#ob."+e.name("#ut", claimUntil)
	e.where("(attribute_not_exists(" + token + ") OR attribute_not_exists(" + until + ") OR " + until + " <= :u)")
	e.set(token, e.value(":t", str(ch.Claim.Token)))
	e.set(until, e.value(":ut", num(ch.Claim.Until.UnixMilli())))
}

// index enters a run into the open index that leaves an end, and takes one out that has ended without messages. A run
// that ends without an expiry, although it has a retention, is left there for Claim to settle: its holder believes
// that it has messages.
func (w *commitWrite) index(e *expression) {
	n, ch := &w.s.names, w.ch
	if !ch.Status.Ended() {
		if w.s.indexed && ch.Status == state.StatusCompensating {
			e.set(e.name("#os", n.OpenShard), "if_not_exists(#os,"+e.value(":os", num(w.s.shard(ch.Key)))+")")
		}
		return
	}
	forEver := ch.ExpiresAt.IsZero()
	stays := len(ch.Messages) > 0 || w.keepOpen || forEver && w.known && (w.hint.retention > 0 || w.hint.messages)
	if stays && forEver || forEver && !w.s.indexed {
		return
	}
	// Otherwise an expiry would take messages along, or they would never be found.
	e.where("size(" + e.name("#ob", n.Outbox) + ")=" + e.value(":left", num(int64(w.leftovers))))
	if forEver {
		e.where("attribute_not_exists(" + e.name("#rt", n.Retention) + ")")
	}
	e.remove(e.name("#os", n.OpenShard)) // without the index too: another store may have put it there
}
