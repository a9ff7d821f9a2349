package archtest

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	fence   = regexp.MustCompile("(?ms)^\\s*```.*?^\\s*```")
	heading = regexp.MustCompile(`(?m)^#{1,6}\s+(.+?)\s*$`)
	dropped = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// links are the targets of the links in a Markdown text, what stands in code blocks left out.
func links(text string) []string {
	var out []string
	for _, m := range link.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
		out = append(out, m[1])
	}
	return out
}

// anchors are the names by which a Markdown page's headings are linked.
func anchors(text string) map[string]bool {
	out := map[string]bool{}
	for _, m := range heading.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
		name := dropped.ReplaceAllString(strings.ToLower(m[1]), "")
		out[strings.ReplaceAll(name, " ", "-")] = true
	}
	return out
}

func external(target string) bool {
	return strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:")
}

func read(t *testing.T, rel string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(rel)))
	require.NoError(t, err)
	return string(b)
}

func TestLinksInTheDocumentationLeadSomewhere(t *testing.T) {
	checked := 0
	eachFile(t, ".md", func(rel string) {
		for _, target := range links(read(t, rel)) {
			if external(target) {
				continue
			}
			checked++
			file, anchor, _ := strings.Cut(target, "#")
			to := rel
			if file != "" {
				to = path.Join(path.Dir(rel), file)
			}
			_, err := os.Stat(filepath.Join(root, filepath.FromSlash(to)))
			if assert.NoError(t, err, "%s links to %s", rel, target) && anchor != "" {
				assert.True(t, anchors(read(t, to))[anchor], "%s links to %s: no such heading", rel, target)
			}
		}
	})
	assert.NotZero(t, checked)
}

// A page that nothing leads to is a page that nobody reads.
func TestEveryPageStandsInItsIndex(t *testing.T) {
	for _, dir := range []string{"docs", "docs/decisions"} {
		listed := map[string]bool{"README.md": true}
		for _, target := range links(read(t, dir+"/README.md")) {
			listed[target] = true
		}
		pages, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(dir), "*.md"))
		require.NoError(t, err)
		require.Greater(t, len(pages), 1)
		for _, p := range pages {
			assert.True(t, listed[filepath.Base(p)], "%s/README.md does not link to %s", dir, filepath.Base(p))
		}
	}
}

func TestLinksAndAnchorsAreFound(t *testing.T) {
	const text = "# One, two: `x_y`\n[a](b.md#c) and [d](#e)\n```\n# no heading\n[f](g)\n```\n## What's next\n"
	assert.Equal(t, []string{"b.md#c", "#e"}, links(text))
	assert.Equal(t, map[string]bool{"one-two-x_y": true, "whats-next": true}, anchors(text))
}
