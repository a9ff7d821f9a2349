package dynamostore_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/state/dynamostore"
)

func guide(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "..", "docs", "dynamodb.md"))
	require.NoError(t, err)
	return string(b)
}

// guideRow is the row of docs/dynamodb.md that begins so.
func guideRow(t *testing.T, begins string) (cells []string) {
	t.Helper()
	for line := range strings.Lines(guide(t)) {
		cells = strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if strings.HasPrefix(line, "|") && cells[0] == begins {
			return cells
		}
	}
	require.Fail(t, "docs/dynamodb.md has no such row", begins)
	return nil
}

// The guide's figures are those that the engine is measured with, neither better nor worse.
func TestTheGuideShowsWhatIsMeasured(t *testing.T) {
	shows := func(row string, m metered) {
		t.Helper()
		got, cells := m.meter.Report(), guideRow(t, row)
		assert.Equal(t, cells[1], fmt.Sprint(got.WriteUnits), "write units, %s", row)
		assert.Equal(t, cells[2], fmt.Sprint(got.ReadUnits), "read units, %s", row)
		m.meter.Reset()
	}
	off := newMetered(t, dynamostore.WithoutIndex())
	runChain(t, off, chain(5, 60, nothing), 100)
	shows("five steps to completion, index off", off)
	runChain(t, off, chain(5, 60, nothing), 100)
	shows("a duplicate of a completed key", off)
	on := newMetered(t)
	runChain(t, on, chain(5, 60, nothing), 100)
	shows("the same, index on", on)

	resumed := newMetered(t, dynamostore.WithoutIndex())
	o, err := saga.New(chain(5, 60, nothing), dieAt(resumed.Store, 3))
	require.NoError(t, err)
	_, err = o.Run(t.Context(), engineKey(), orderOf(100))
	require.ErrorIs(t, err, saga.ErrInterrupted)
	runChain(t, lapsed{resumed.Store}, chain(5, 60, nothing), 100)
	shows("resumed after a crash in step 3, index off", resumed)

	results := newMetered(t, dynamostore.WithoutIndex())
	runChain(t, results, chain(20, 1800, nothing), 100)
	shows("twenty steps with results of 1,800 bytes, index off", results)
	input := newMetered(t, dynamostore.WithoutIndex())
	runChain(t, input, chain(5, 60, nothing), 30_000)
	shows("an input of 30,000 bytes, five steps, index off", input)
}

// What the guide asks for a million runs follows from its own figures and prices.
func TestTheGuidesArithmetic(t *testing.T) {
	text := guide(t)
	price := regexp.MustCompile(`a million write units cost ([\d.]+) USD and a million read units ([\d.]+) USD \(public prices, (\w+)\s+(\d{4})`).FindStringSubmatch(text)
	require.NotNil(t, price, "the prices, and when they were looked up")
	assert.Equal(t, []string{"0.625", "0.125"}, price[1:3])
	number := func(s string) float64 {
		t.Helper()
		n, err := strconv.ParseFloat(regexp.MustCompile(`[\d.]+`).FindString(s), 64)
		require.NoError(t, err, s)
		return n
	}
	for row, factors := range map[string][2]float64{
		"Tsuzuki, index off":       {number(guideRow(t, "five steps to completion, index off")[1]), number(price[1])},
		"Tsuzuki, index on":        {number(guideRow(t, "the same, index on")[1]), number(price[1])},
		"Lambda durable functions": {5, 8},
		"Step Functions Standard":  {5, 25},
	} {
		cells := guideRow(t, row)
		assert.InDelta(t, factors[0]*factors[1], number(cells[2]), 1e-9, row)
		words := fmt.Sprintf("^%v (?:steps )?× %v", factors[0], factors[1])
		assert.Regexp(t, words, cells[1], "the arithmetic of %s", row)
	}
	for _, row := range []string{"a recovery loop, nothing open", "the same, 100 runs open on average", "a relay's loop, nothing open"} {
		cells := guideRow(t, row)
		looks := 30 * 24 * 3600 / number(cells[1])
		factors := regexp.MustCompile(`^([\d.]+) × ([\d,]+) `).FindStringSubmatch(cells[2])
		require.NotNil(t, factors, row)
		assert.Equal(t, strconv.FormatFloat(looks, 'f', 0, 64), strings.ReplaceAll(factors[2], ",", ""), row)
		assert.InDelta(t, number(factors[1])*looks/1e6*number(price[2]), number(cells[3]), 0.005, row)
	}
}
