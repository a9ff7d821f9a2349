// Package lambdatest is test code: it runs a program as a function in the Lambda runtime interface emulator, which ends it
// at its timeout as Lambda does and goes on after its death. There is no such emulator but on Linux, as far as these tests
// go: they stop processes by signals.
package lambdatest
