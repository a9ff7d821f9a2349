package dynamostore

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/tsuzuki-go/tsuzuki/state"
)

const (
	rareMark    = '!' // in front of the JSON with what a step rarely has
	siblingMark = '@' // in front of the write ID of a sibling
)

var letters = map[state.StepStatus]byte{
	state.StepPending: 'P', state.StepStarted: 'S', state.StepDone: 'D', state.StepSkipped: 'K',
	state.StepCompensating: 'C', state.StepCompensated: 'U',
}

func statusOf(letter byte) (state.StepStatus, bool) {
	for s, l := range letters {
		if l == letter {
			return s, true
		}
	}
	return "", false
}

// rare is what few steps have.
type rare struct {
	Name      *string      `json:"name,omitempty"` // when the plan does not tell it
	Error     *failureJSON `json:"error,omitempty"`
	Undo      int          `json:"undo,omitempty"`
	UndoError *failureJSON `json:"undo_error,omitempty"`
}

// where tells where a payload is: in the value itself, or in the sibling with this write ID.
type where struct {
	sibling bool
	writeID string
}

// encodeStep is the value of a step. name tells that it carries the name.
func encodeStep(s *state.StepRecord, b base, name bool, output where) (string, error) {
	letter, ok := letters[s.Status]
	if !ok {
		return "", fmt.Errorf("%w: step %s: no such status %q", state.ErrTransition, state.Cut(s.Name), state.Cut(string(s.Status)))
	}
	v := make([]byte, 0, 24+len(s.Output)+len(output.writeID))
	v = append(v, letter)
	if s.Attempts != 0 {
		v = strconv.AppendInt(v, int64(s.Attempts), 10)
	}
	if s.Unknown {
		v = append(v, '?')
	}
	v = append(v, '|')
	v = appendSpan(v, b, s.StartedAt, s.EndedAt)
	v = append(v, '|')
	if name || s.Error != nil || s.UndoError != nil || s.UndoAttempts != 0 {
		r := rare{Error: toFailure(s.Error), Undo: s.UndoAttempts, UndoError: toFailure(s.UndoError)}
		if name {
			r.Name = &s.Name
		}
		v = append(v, rareMark)
		v = append(v, encodeJSON(r)...)
		v = append(v, '|')
	}
	switch {
	case output.sibling:
		v = append(append(v, siblingMark), output.writeID...)
	case len(s.Output) > 0:
		v = append(v, s.Output...)
	default:
		v = bytes.TrimRight(v, "|")
	}
	return string(v), nil
}

// fitsStep tells whether an output may stand in a step's value: not too long, and nothing that could be taken for
// something else.
func fitsStep(output []byte) bool {
	if len(output) == 0 {
		return true
	}
	return output[0] != rareMark && output[0] != siblingMark && inlines(output)
}

// decodeStep is the inverse of encodeStep. named tells whether the value carries the name; the output is left
// empty when it is in a sibling.
func decodeStep(value string, b base) (s state.StepRecord, named bool, output where, err error) {
	head, rest, _ := strings.Cut(value, "|")
	span, rest, _ := strings.Cut(rest, "|")
	if err := decodeHead(&s, head); err != nil {
		return s, named, output, err
	}
	if s.StartedAt, s.EndedAt, err = parseSpan(span, b); err != nil {
		return s, named, output, err
	}
	if rest != "" && rest[0] == rareMark {
		if rest, named, err = decodeRare(&s, rest[1:]); err != nil {
			return s, named, output, err
		}
	}
	switch {
	case rest == "":
	case rest[0] == siblingMark:
		return s, named, where{sibling: true, writeID: rest[1:]}, nil
	default:
		s.Output = json.RawMessage(rest)
	}
	return s, named, output, nil
}

func decodeHead(s *state.StepRecord, head string) error {
	digits, unknown := strings.CutSuffix(head, "?")
	status, ok := state.StepStatus(""), false
	if digits != "" {
		status, ok = statusOf(digits[0])
	}
	if !ok {
		return fmt.Errorf("%w: the status of a step, %q", state.ErrCorrupt, state.Cut(head))
	}
	s.Status, s.Unknown = status, unknown
	if digits = digits[1:]; digits != "" {
		n, err := strconv.Atoi(digits)
		if err != nil {
			return fmt.Errorf("%w: the attempts of a step, %q", state.ErrCorrupt, state.Cut(head))
		}
		s.Attempts = n
	}
	return nil
}

func decodeRare(s *state.StepRecord, text string) (rest string, named bool, err error) {
	var r rare
	d := json.NewDecoder(strings.NewReader(text))
	if err := d.Decode(&r); err != nil {
		return "", false, fmt.Errorf("%w: what a step rarely has: %w", state.ErrCorrupt, err)
	}
	s.Error, s.UndoAttempts, s.UndoError = r.Error.failure(), r.Undo, r.UndoError.failure()
	if r.Name != nil {
		s.Name = *r.Name
	}
	rest = text[d.InputOffset():]
	if rest != "" && rest[0] != '|' {
		return "", false, fmt.Errorf("%w: no bar behind what a step rarely has", state.ErrCorrupt)
	}
	return strings.TrimPrefix(rest, "|"), r.Name != nil, nil
}
