package sagahttp

import "github.com/tsuzuki-go/tsuzuki/internal/clock"

// Slugs are the kinds of problems with their status.
func Slugs() map[string]int {
	out := map[string]int{}
	for _, k := range kinds() {
		out[k.slug] = k.status
	}
	return out
}

// On gives the transport a clock.
func (t *RetryTransport) On(c clock.Clock) *RetryTransport {
	t.clk = c
	return t
}
