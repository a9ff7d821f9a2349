// Package archtest holds the tests of the repository's shape: which way imports run, what the core may link, and that the
// documentation hangs together. It has no code of its own.
package archtest
