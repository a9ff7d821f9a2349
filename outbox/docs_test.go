package outbox_test

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The page lists the log events that there are, and no others.
func TestLogEventsAreDocumented(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "docs", "outbox.md"))
	require.NoError(t, err)
	var documented []string
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| (?:info|warn|error) \\|").FindAllSubmatch(page, -1) {
		documented = append(documented, string(m[1]))
	}
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	logged := map[string]bool{}
	event := regexp.MustCompile(`(?:logger\.(?:Info|Warn|Error)\(|said :?= )"([a-z_]+)"`)
	for _, f := range files {
		src, err := os.ReadFile(f)
		require.NoError(t, err)
		for _, m := range event.FindAllSubmatch(src, -1) {
			logged[string(m[1])] = true
		}
	}
	require.NotEmpty(t, logged)
	var names []string
	for name := range logged {
		names = append(names, name)
	}
	assert.ElementsMatch(t, names, documented)
}
