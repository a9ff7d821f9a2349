package state_test

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/state"
)

const stateMachine = "../docs/state-machine.md"

type edge struct{ from, to state.Status }

const start state.Status = "[*]"

// drawing is what docs/state-machine.md says, in a form that can be compared.
type drawing struct {
	edges  map[edge]bool
	ended  map[state.Status]bool // a row per status
	stays  map[state.Status]bool
	steps  []state.StepStatus
	defect error
}

var arrow = regexp.MustCompile(`^(\[\*\]|[A-Z_]+) --> ([A-Z_]+)(?:: \S.*)?$`)

func readDrawing(text string) drawing {
	d := drawing{edges: map[edge]bool{}, ended: map[state.Status]bool{}, stays: map[state.Status]bool{}}
	_, rest, found := strings.Cut(text, "```mermaid\nstateDiagram-v2\n")
	diagram, prose, closed := strings.Cut(rest, "\n```\n")
	if !found || !closed {
		d.defect = fmt.Errorf("no Mermaid state diagram")
		return d
	}
	for line := range strings.Lines(diagram) {
		m := arrow.FindStringSubmatch(strings.TrimSpace(line))
		if m == nil {
			d.defect = fmt.Errorf("not understood in the diagram: %q", line)
			return d
		}
		e := edge{state.Status(m[1]), state.Status(m[2])}
		if d.edges[e] {
			d.defect = fmt.Errorf("drawn twice: %v", e)
		}
		d.edges[e] = true
	}
	for _, row := range rows(prose, "## What each status means") {
		d.ended[state.Status(row[0])] = row[1] == "yes"
	}
	for _, row := range rows(prose, "## Writes that keep the status") {
		d.stays[state.Status(row[0])] = true
	}
	for _, row := range rows(prose, "## The states of a step") {
		d.steps = append(d.steps, state.StepStatus(row[0]))
	}
	return d
}

// rows are the cells of the first table below a heading, without its head, back quotes removed.
func rows(text, heading string) [][]string {
	_, section, _ := strings.Cut(text, heading+"\n")
	section, _, _ = strings.Cut(section, "\n## ")
	var out [][]string
	for line := range strings.Lines(section) {
		if !strings.HasPrefix(line, "| `") {
			continue
		}
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range cells {
			cells[i] = strings.Trim(strings.TrimSpace(cells[i]), "`")
		}
		out = append(out, cells)
	}
	return out
}

func TestStateMachineIsDrawnAsItIs(t *testing.T) {
	text, err := os.ReadFile(stateMachine)
	require.NoError(t, err)
	d := readDrawing(string(text))
	require.NoError(t, d.defect)

	drawn := 0
	for _, from := range state.Statuses() {
		for _, to := range state.Statuses() {
			shown := d.edges[edge{from, to}]
			if from == to {
				assert.False(t, shown, "%s: writes that keep the status stand in the table, not in the diagram", from)
				shown = d.stays[from]
			} else if shown {
				drawn++
			}
			assert.Equal(t, from.CanBecome(to), shown, "%s to %s: CanBecome, and whether %s shows it", from, to, stateMachine)
		}
	}
	assert.True(t, d.edges[edge{start, state.StatusInProgress}], "every run starts as IN_PROGRESS")
	assert.Len(t, d.edges, drawn+1, "an arrow from or to a status that there is not")
}

func TestStateMachineTellsEveryStatus(t *testing.T) {
	text, err := os.ReadFile(stateMachine)
	require.NoError(t, err)
	d := readDrawing(string(text))
	require.NoError(t, d.defect)

	assert.Len(t, d.ended, len(state.Statuses()))
	for _, s := range state.Statuses() {
		ended, ok := d.ended[s]
		assert.True(t, ok, "%s has no row", s)
		assert.Equal(t, s.Ended(), ended, "%s", s)
	}
	assert.Equal(t, state.StepStatuses(), d.steps)
}

// A checker that finds nothing wrong with a wrong page is worth nothing.
func TestStateMachineReaderSeesMistakes(t *testing.T) {
	page, err := os.ReadFile(stateMachine)
	require.NoError(t, err)
	text := string(page)
	right := readDrawing(text)
	for name, wrong := range map[string]string{
		"an arrow is missing":    strings.Replace(text, "  BLOCKED --> INTERRUPTED: operator\n", "", 1),
		"an arrow is reversed":   strings.Replace(text, "COMPLETED --> COMPENSATING", "COMPENSATING --> COMPLETED", 1),
		"a status is misspelled": strings.Replace(text, "--> REVERSED", "--> REVERTED", 1),
		"a row is missing":       strings.Replace(text, "| `BLOCKED` | no |", "BLOCKED:", 1),
		"the end is wrong":       strings.Replace(text, "| `FAILED` | yes |", "| `FAILED` | no |", 1),
		"a stay is missing":      strings.Replace(text, "| `COMPENSATING` | an undo,", "COMPENSATING: an undo,", 1),
		"no diagram":             strings.Replace(text, "```mermaid", "```text", 1),
		"an odd line":            strings.Replace(text, "  [*] --> IN_PROGRESS\n", "  [*] ==> IN_PROGRESS\n", 1),
	} {
		t.Run(name, func(t *testing.T) {
			require.NotEqual(t, text, wrong, "the page has changed: change this test with it")
			assert.NotEqual(t, right, readDrawing(wrong))
		})
	}
}
