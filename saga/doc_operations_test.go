package saga_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/saga"
)

const operationsPage = "../docs/operations.md"

// docBlocks are the code blocks of a page in this language.
func docBlocks(t *testing.T, page, language string) []string {
	t.Helper()
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	var out []string
	for _, part := range strings.Split(string(text), "\n```"+language+"\n")[1:] {
		block, _, closed := strings.Cut(part, "\n```\n")
		require.True(t, closed)
		out = append(out, block)
	}
	require.NotEmpty(t, out)
	return out
}

// unindented is the text without what each line begins with.
func unindented(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString(strings.TrimLeft(line, "\t"))
	}
	return strings.TrimSpace(b.String())
}

func TestTheCodeOfTheOperationsPageIsCompiled(t *testing.T) {
	compiled, err := os.ReadFile("example_operations_test.go")
	require.NoError(t, err)
	for _, block := range docBlocks(t, operationsPage, "go") {
		assert.Contains(t, unindented(string(compiled)), unindented(block))
	}
}

// The README's example is what stands between two marks of a file that is compiled and run.
func TestTheExampleOfTheReadmeIsCompiled(t *testing.T) {
	compiled, err := os.ReadFile("example_readme_test.go")
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(compiled), "// readme:begin\n")
	example, _, ended := strings.Cut(rest, "// readme:end\n")
	require.True(t, found && ended)
	blocks := docBlocks(t, "../README.md", "go")
	require.Len(t, blocks, 1)
	assert.Equal(t, strings.TrimSpace(example), blocks[0])
}

var logged = regexp.MustCompile(`log\.(Info|Warn|Error)\("([a-z_]+)"|log\.Check\(zap\.(Info|Warn|Error)Level, "([a-z_]+)"|log\(e\.log\.(Info|Warn|Error), "([a-z_]+)"`)

func TestEveryLogEventIsDocumented(t *testing.T) {
	inCode := map[string]string{}
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	for _, f := range files {
		if strings.HasSuffix(f, "_test.go") {
			continue
		}
		text, err := os.ReadFile(f)
		require.NoError(t, err)
		for _, m := range logged.FindAllStringSubmatch(string(text), -1) {
			inCode[m[2]+m[4]+m[6]] = strings.ToLower(m[1] + m[3] + m[5])
		}
	}
	inDoc := map[string]string{}
	for _, row := range docTables(t, operationsPage)["event level when"] {
		inDoc[row[0]] = row[1]
	}
	assert.Equal(t, inCode, inDoc)
}

func TestEveryFunctionOfAListenerIsDocumented(t *testing.T) {
	var inCode, inDoc []string
	for _, f := range reflect.VisibleFields(reflect.TypeFor[saga.Listener]()) {
		if f.IsExported() {
			inCode = append(inCode, f.Name)
		}
	}
	for _, row := range docTables(t, operationsPage)["function told"] {
		inDoc = append(inDoc, row[0])
	}
	assert.Equal(t, inCode, inDoc)
}

func TestEveryVerbIsDocumented(t *testing.T) {
	inDoc := map[string]bool{"Get": true, "Runs": true} // they change nothing
	for _, row := range docTables(t, operationsPage)["verb allowed on says the run becomes"] {
		inDoc[row[0]] = true
	}
	operator := reflect.TypeFor[*saga.Operator]()
	for i := range operator.NumMethod() {
		assert.True(t, inDoc[operator.Method(i).Name], "%s", operator.Method(i).Name)
	}
}

func TestEveryCodeIsDocumented(t *testing.T) {
	text, err := os.ReadFile(operationsPage)
	require.NoError(t, err)
	file, err := parser.ParseFile(token.NewFileSet(), "errors.go", nil, 0)
	require.NoError(t, err)
	seen := 0
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || !strings.HasPrefix(spec.Names[0].Name, "Code") {
			return true
		}
		code, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
		require.NoError(t, err)
		assert.Contains(t, string(text), "`"+code+"`", "the code %s", code)
		seen++
		return true
	})
	assert.GreaterOrEqual(t, seen, 9)
}
