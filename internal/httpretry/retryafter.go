// Package httpretry reads the Retry-After field of an HTTP response (RFC 9110, section 10.2.3), for everything in the
// library that calls or is called over HTTP. It trusts nothing in the field: what a server sends can neither stop a run
// for ever nor make it spin.
package httpretry

import (
	"net/http"
	"strings"
	"time"
)

// Most is the longest wait that is believed. A server that asks for more is asked again after that time; coming back too
// early costs one more refused call, while believing a field such as "Fri, 31 Dec 9999" would stop a run for good.
const Most = 24 * time.Hour

// Parse reads the value of one Retry-After field: delay-seconds (digits alone) or an HTTP-date in any of the three
// formats of RFC 9110, section 5.6.7, taken relative to now. The result lies between 0 (also for a date gone by) and
// [Most]. It reports false for anything else, a sign, a fraction or a unit included.
func Parse(h string, now time.Time) (time.Duration, bool) {
	h = strings.Trim(h, " \t")
	if h == "" {
		return 0, false
	}
	if isDigits(h) {
		return seconds(h), true
	}
	at, err := http.ParseTime(h)
	if err != nil {
		return 0, false
	}
	return clamp(at.Sub(now)), true // Sub saturates, so that no date overflows
}

// FromHeader is the wait that the header of a response asks for. A date is taken relative to the response's own Date
// when it has one, so that a server's wrong clock does no harm, else to now. When the field is repeated, against the
// RFC, the longest wait is taken.
func FromHeader(h http.Header, now time.Time) (time.Duration, bool) {
	if date, err := http.ParseTime(strings.Trim(h.Get("Date"), " \t")); err == nil {
		now = date
	}
	var longest time.Duration
	var found bool
	for _, v := range h.Values("Retry-After") {
		if d, ok := Parse(v, now); ok {
			longest, found = max(longest, d), true
		}
	}
	return longest, found
}

func isDigits(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r < '0' || r > '9' }) < 0
}

// seconds adds up the digits and stops at Most, so that no number of digits overflows.
func seconds(digits string) time.Duration {
	n := 0
	for i := range len(digits) {
		n = n*10 + int(digits[i]-'0')
		if n >= int(Most/time.Second) {
			return Most
		}
	}
	return time.Duration(n) * time.Second
}

func clamp(d time.Duration) time.Duration {
	return min(max(d, 0), Most)
}
