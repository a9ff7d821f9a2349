// Package laws is the rules of a run's record, written down a second time and more simply than in the engine: each looks
// at one write, or at one start of a function, and knows nothing of how the engine came to it. The crash lab and the
// simulation hold every run against them.
package laws
