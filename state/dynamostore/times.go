package dynamostore

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/tsuzuki-go/tsuzuki/state"
)

// base is what offsets in step and message values count from. The zero base counts from 1970.
type base struct {
	known bool
	ms    int64
}

func baseOf(created time.Time) base {
	if created.IsZero() {
		return base{}
	}
	return base{known: true, ms: created.UnixMilli()}
}

// absolute marks an offset that counts from 1970.
const absolute = '@'

// appendSpan appends "<start>[+<took>]", each part left out when its time is zero. A duration without a start counts from
// the base.
func appendSpan(to []byte, b base, start, end time.Time) []byte {
	if start.IsZero() && end.IsZero() {
		return to
	}
	if !b.known {
		to = append(to, absolute)
	}
	from := b.ms
	if !start.IsZero() {
		to = strconv.AppendInt(to, start.UnixMilli()-from, 10)
		from = start.UnixMilli()
	}
	if !end.IsZero() {
		to = append(to, '+')
		to = strconv.AppendInt(to, end.UnixMilli()-from, 10)
	}
	return to
}

func parseSpan(s string, b base) (start, end time.Time, err error) {
	if s == "" {
		return start, end, nil
	}
	from := b.ms
	if s == string(absolute) {
		return start, end, fmt.Errorf("%w: a time is missing", state.ErrCorrupt)
	}
	if s[0] == absolute {
		s, from = s[1:], 0
	} else if !b.known {
		return start, end, fmt.Errorf("%w: a time that counts from created_at, which is missing", state.ErrCorrupt)
	}
	first, second, ended := strings.Cut(s, "+")
	if first != "" {
		n, err := strconv.ParseInt(first, 10, 64)
		if err != nil {
			return start, end, fmt.Errorf("%w: the time %q", state.ErrCorrupt, state.Cut(first))
		}
		from += n
		start = time.UnixMilli(from).UTC()
	}
	if ended {
		n, err := strconv.ParseInt(second, 10, 64)
		if err != nil {
			return start, end, fmt.Errorf("%w: the duration %q", state.ErrCorrupt, state.Cut(second))
		}
		end = time.UnixMilli(from + n).UTC()
	}
	return start, end, nil
}

// ms is a time as it stands in JSON and in numbers: milliseconds since 1970, nil for the zero time.
func ms(t time.Time) *int64 {
	if t.IsZero() {
		return nil
	}
	n := t.UnixMilli()
	return &n
}

func fromMS(n *int64) time.Time {
	if n == nil {
		return time.Time{}
	}
	return time.UnixMilli(*n).UTC()
}
