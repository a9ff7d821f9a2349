package sqlite

// childEnv names what this test binary does when a test starts it as another process.
const childEnv = "TSUZUKI_SQLITE_CHILD"

var children = map[string]func() int{}
