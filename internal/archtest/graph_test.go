package archtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	module = "github.com/tsuzuki-go/tsuzuki"
	root   = "../.."
)

// pkg is what is known of one package, tests left out.
type pkg struct {
	ImportPath string
	Standard   bool
	Imports    []string
	Deps       []string // everything linked with it, itself left out
}

type graph map[string]pkg

// load asks the go command, which knows build constraints and go.mod better than a parser of ours would.
func load(t *testing.T, goos string) graph {
	t.Helper()
	eachFile(t, ".go", func(string) {})
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-json=ImportPath,Standard,Imports,Deps", "./...")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "GOOS="+goos, "GOARCH=amd64", "CGO_ENABLED=0")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, "%s", stderr.String())
	g, err := decode(bytes.NewReader(out))
	require.NoError(t, err)
	return g
}

// eachFile calls f for every file of the module whose name ends in suffix, with its path from the root. It asks for each
// by name, because go test keeps a passed result only until something changes that the test itself has looked at: what a
// child process such as go list reads does not count.
func eachFile(t *testing.T, suffix string, f func(rel string)) {
	t.Helper()
	seen := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name := d.Name(); d.IsDir() && path != root && (strings.HasPrefix(name, ".") || name == "node_modules") {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(path, suffix) {
			return nil
		}
		if _, err := os.Stat(path); err != nil {
			return err
		}
		seen++
		rel, err := filepath.Rel(root, path)
		f(filepath.ToSlash(rel))
		return err
	})
	require.NoError(t, err)
	require.NotZero(t, seen, "no %s file found", suffix)
}

func decode(r io.Reader) (graph, error) {
	g := graph{}
	for dec := json.NewDecoder(r); ; {
		var p pkg
		err := dec.Decode(&p)
		if errors.Is(err, io.EOF) {
			return g, nil
		}
		if err != nil {
			return nil, fmt.Errorf("output of go list: %w", err)
		}
		g[p.ImportPath] = p
	}
}

// local is the path of a package within the module; ok is false for packages of others.
func local(path string) (rel string, ok bool) {
	if path == module {
		return ".", true
	}
	return strings.CutPrefix(path, module+"/")
}

// under tells whether path is one of the roots, or below one.
func under(path string, roots ...string) bool {
	for _, r := range roots {
		if path == r || strings.HasPrefix(path, r+"/") {
			return true
		}
	}
	return false
}
