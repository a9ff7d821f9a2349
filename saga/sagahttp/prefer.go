package sagahttp

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// preferredWait is the "wait" of the request's Prefer fields (RFC 7240, section 4.3), at most as long as is allowed. The
// first one counts. What can't be read is passed over, as the RFC demands of preferences.
func preferredWait(h http.Header, most time.Duration) time.Duration {
	for _, field := range h.Values("Prefer") {
		for _, preference := range splitOutsideQuotes(field, ',') {
			preference = splitOutsideQuotes(preference, ';')[0] // without its parameters
			name, value, _ := strings.Cut(preference, "=")
			if !strings.EqualFold(strings.Trim(name, " \t"), "wait") {
				continue
			}
			n, err := strconv.ParseUint(strings.Trim(value, " \t\""), 10, 31)
			if err != nil {
				return 0
			}
			return min(time.Duration(n)*time.Second, most)
		}
	}
	return 0
}

// splitOutsideQuotes is strings.Split, but for separators within a quoted string.
func splitOutsideQuotes(s string, sep byte) []string {
	var out []string
	start, quoted := 0, false
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '"':
			quoted = !quoted
		case s[i] == '\\' && quoted:
			i++
		case s[i] == sep && !quoted:
			out = append(out, s[start:i])
			start = i + 1
		}
	}
	return append(out, s[start:])
}
