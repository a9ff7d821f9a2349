package dynamostore

import (
	"fmt"
	"strings"

	"github.com/tsuzuki-go/tsuzuki/state"
)

const pivotMark = '!'

// encodePlan is the plan attribute; empty for a plan without steps.
func encodePlan(plan []string, pivot string) string {
	var b strings.Builder
	for i, name := range plan {
		if i > 0 {
			b.WriteByte(',')
		}
		if name == "" {
			b.WriteByte('%') // so that it differs from no step at all
		}
		escapeTo(&b, name, ",!")
		if name == pivot && pivot != "" {
			b.WriteByte(pivotMark)
		}
	}
	return b.String()
}

func decodePlan(s string) (plan []string, pivot string, err error) {
	if s == "" {
		return nil, "", nil
	}
	plan = strings.Split(s, ",")
	for i, name := range plan {
		name, isPivot := strings.CutSuffix(name, string(pivotMark))
		if name == "%" {
			name = ""
		} else if name, err = unescape(name); err != nil {
			return nil, "", err
		}
		if isPivot {
			pivot = name
		}
		plan[i] = name
	}
	return plan, pivot, nil
}

const upperHex = "0123456789ABCDEF"

// escapeTo writes s with percent signs and the bytes of special percent-escaped.
func escapeTo(b *strings.Builder, s, special string) {
	for {
		i := strings.IndexAny(s, special+"%")
		if i < 0 {
			b.WriteString(s)
			return
		}
		b.WriteString(s[:i])
		b.WriteByte('%')
		b.WriteByte(upperHex[s[i]>>4])
		b.WriteByte(upperHex[s[i]&15])
		s = s[i+1:]
	}
}

// unescape is the inverse of escapeTo.
func unescape(s string) (string, error) {
	i := strings.IndexByte(s, '%')
	if i < 0 {
		return s, nil
	}
	b := make([]byte, i, len(s))
	copy(b, s)
	for ; i < len(s); i++ {
		if s[i] != '%' {
			b = append(b, s[i])
			continue
		}
		if i+2 >= len(s) {
			return "", fmt.Errorf("%w: a cut-off escape", state.ErrCorrupt)
		}
		hi, lo := strings.IndexByte(upperHex, s[i+1]), strings.IndexByte(upperHex, s[i+2])
		if hi < 0 || lo < 0 {
			return "", fmt.Errorf("%w: a malformed escape", state.ErrCorrupt)
		}
		b = append(b, byte(hi<<4|lo))
		i += 2
	}
	return string(b), nil
}
