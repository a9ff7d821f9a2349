// Package page holds the program of docs/testing.md as a test, so that the page shows code that works.
package page
