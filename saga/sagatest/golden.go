package sagatest

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tsuzuki-go/tsuzuki/internal/drive"
	"github.com/tsuzuki-go/tsuzuki/saga"
)

const updateFlag = "sagatest.update"

var update = flag.Bool(updateFlag, false, "of sagatest.Golden: store the plans as they are declared now")

// storedPlan is what runs in flight hold a declaration to.
type storedPlan struct {
	Version int      `json:"version"`
	Steps   []string `json:"steps"`
	Pivot   string   `json:"pivot,omitempty"`
}

// Golden fails when a change to a declaration would strand runs in flight: when a run that was started by the plan that
// is stored could not be continued. The plans of all versions are stored in testdata/sagatest/<name>.json below the
// test's folder, which belongs in version control; go test -sagatest.update stores them as they are declared now. Do that
// when a plan was extended at its end, which runs in flight take in their stride, and when no run of an old plan is left.
func Golden[In, Out any](t testing.TB, definition *saga.Definition[In, Out]) {
	t.Helper()
	if definition == nil {
		t.Fatalf("sagatest: Golden: the definition is nil")
	}
	golden(t, definition.Snapshot(), filepath.Join("testdata", "sagatest"), *update)
}

func golden(t testing.TB, def drive.Definition, dir string, update bool) {
	t.Helper()
	file := filepath.Join(dir, def.Name+".json")
	declared := plansOf(def)
	if update {
		if err := storePlans(file, declared); err != nil {
			t.Fatalf("sagatest: Golden: %v", err)
		}
		return
	}
	raw, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("sagatest: Golden: there is no stored plan of %s; store it with: go test -run '^%s$' . -%s", def.Name, t.Name(), updateFlag)
	}
	var stored []storedPlan
	if err == nil {
		err = json.Unmarshal(raw, &stored)
	}
	if err != nil {
		t.Fatalf("sagatest: Golden: %s can't be read: %v", file, err)
	}
	if wrong := stranded(stored, declared); len(wrong) > 0 {
		t.Errorf("sagatest: Golden: this change to %s would strand runs in flight:\n  - %s\n"+
			"  what to do: take the change back, or give the new declaration another Version and keep the old one with Previous; "+
			"when no such run is left: go test -run '^%s$' . -%s", def.Name, strings.Join(wrong, "\n  - "), t.Name(), updateFlag)
		return
	}
	if !slices.EqualFunc(stored, declared, func(a, b storedPlan) bool {
		return a.Version == b.Version && a.Pivot == b.Pivot && slices.Equal(a.Steps, b.Steps)
	}) {
		t.Logf("sagatest: Golden: %s has changed in a way that runs in flight take in their stride; before its next change store it with: go test -run '^%s$' . -%s",
			def.Name, t.Name(), updateFlag)
	}
}

// plansOf are the plans of all versions, the present one first.
func plansOf(def drive.Definition) []storedPlan {
	out := []storedPlan{{def.Version, def.Names(), def.PivotName()}}
	for _, older := range def.Previous {
		out = append(out, storedPlan{older.Version, older.Names(), older.PivotName()})
	}
	return out
}

func storePlans(file string, plans []storedPlan) error {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetIndent("", "  ")
	if err := enc.Encode(plans); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, out.Bytes(), 0o600)
}

// stranded says for each stored plan that no declaration continues why not.
func stranded(stored, declared []storedPlan) (wrong []string) {
	for _, old := range stored {
		i := slices.IndexFunc(declared, func(p storedPlan) bool { return p.Version == old.Version })
		if i < 0 {
			wrong = append(wrong, fmt.Sprintf("version %d is not declared any more, neither as the present one nor with Previous", old.Version))
			continue
		}
		if why := continues(old, declared[i]); why != "" {
			wrong = append(wrong, fmt.Sprintf("version %d: %s", old.Version, why))
		}
	}
	return wrong
}

// continues is the rule of a changed declaration: the stored plan is a prefix of the declared one, and its pivot the same.
func continues(old, now storedPlan) string {
	for i, name := range old.Steps {
		switch {
		case i >= len(now.Steps):
			return fmt.Sprintf("step %d, %q, was removed", i+1, name)
		case now.Steps[i] != name:
			return fmt.Sprintf("step %d was %q and is %q (renamed, removed, inserted or reordered)", i+1, name, now.Steps[i])
		}
	}
	if old.Pivot != now.Pivot && !(old.Pivot == "" && !slices.Contains(old.Steps, now.Pivot)) {
		return fmt.Sprintf("the pivot was %q and is %q", old.Pivot, now.Pivot)
	}
	return ""
}
