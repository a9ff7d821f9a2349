package archtest

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A file behind a build constraint is a way around the walls too, so each supported system is looked at.
func TestImportsRunOneWay(t *testing.T) {
	for _, goos := range []string{"linux", "darwin", "windows"} {
		t.Run(goos, func(t *testing.T) {
			g := load(t, goos)
			for _, path := range []string{"outbox", "state", "steps", "compensate", "saga"} {
				require.NotEmpty(t, g[module+"/"+path].Deps, "%s and what it links must be seen to be judged", path)
			}
			assert.Empty(t, check(g))
		})
	}
}

// one is a graph of a single package, which links deps; packages with a dot in the first element are not standard ones.
func one(rel string, deps ...string) graph {
	g := graph{module + "/" + rel: {ImportPath: module + "/" + rel, Deps: deps}}
	for _, d := range deps {
		first, _, _ := strings.Cut(d, "/")
		g[d] = pkg{ImportPath: d, Standard: !strings.Contains(first, ".")}
	}
	return g
}

func TestCheckSeesEveryWrongImport(t *testing.T) {
	const m = module + "/"
	for rel, deps := range map[string][]string{
		"outbox":             {m + "state", m + "steps", m + "compensate", m + "saga", m + "outbox/sqsoutbox"},
		"state":              {m + "steps", m + "compensate", m + "saga", m + "state/sqlite", m + "examples/payment", "database/sql"},
		"steps":              {m + "compensate", m + "saga", m + "state/memory", "testing", "testing/quick"},
		"compensate":         {m + "saga", "zombiezen.com/go/sqlite", "modernc.org/libc", "github.com/ncruces/go-sqlite3"},
		"saga":               {"github.com/aws/aws-sdk-go-v2/aws", "github.com/aws/aws-lambda-go/events", m + "saga/sagahttp", "github.com/stretchr/testify/assert"},
		"state/sqlite":       {m + "steps", m + "saga", "github.com/stretchr/testify/require", "testing", m + "state/statetest"},
		"state/statetest":    {m + "saga", m + "steps"},
		"outbox/sqsoutbox":   {m + "state", m + "saga/sagatest"},
		"examples/payment":   {"github.com/stretchr/testify/require", m + "saga/sagatest", m + "internal/faulttest"},
		"internal/digest":    {"github.com/stretchr/testify/assert", "go.uber.org/goleak"},
		"saga/sagahttp/deep": {"go.uber.org/goleak"},
	} {
		for _, dep := range deps {
			assert.NotEmpty(t, check(one(rel, dep)), "%s links %s", rel, dep)
		}
	}
}

func TestCheckAllowsWhatIsRight(t *testing.T) {
	const m = module + "/"
	for rel, deps := range map[string][]string{
		"outbox":              {"fmt", "net/http", m + "internal/digest"},
		"saga":                {m + "outbox", m + "state", m + "steps", m + "compensate", m + "internal/drive", "go.uber.org/zap", "go.uber.org/zap/zapcore", "go.uber.org/multierr", "github.com/cenkalti/backoff/v4"},
		"state/sqlite":        {m + "state", m + "outbox", "zombiezen.com/go/sqlite", "modernc.org/libc", "modernc.org/sqlite"},
		"state/dynamostore":   {m + "state", m + "state/other", "github.com/aws/aws-sdk-go-v2/service/dynamodb"},
		"state/statetest":     {m + "state", m + "state/memory", "testing", "github.com/stretchr/testify/assert"},
		"saga/sagatest":       {m + "saga", m + "state/statetest", m + "internal/faulttest", "testing"},
		"saga/sagalambda":     {m + "saga", m + "saga/sagahttp", m + "state", "github.com/aws/aws-lambda-go/events"},
		"examples/payment":    {m + "saga", m + "state/sqlite", m + "outbox/sqsoutbox"},
		"internal/faulttest":  {"testing", "github.com/stretchr/testify/require"},
		"internal/drive":      {m + "state", m + "outbox"},
		"outbox/sqsoutbox":    {m + "outbox", m + "internal/httpretry"},
		"saga/sagatest/probe": {"go.uber.org/goleak"},
	} {
		assert.Empty(t, check(one(rel, deps...)), rel)
	}
}

func TestDecodeReportsBrokenOutput(t *testing.T) {
	_, err := decode(strings.NewReader(`{"ImportPath":"a"}{"ImportPath":`))
	require.Error(t, err)
	g, err := decode(strings.NewReader(`{"ImportPath":"a"}{"ImportPath":"b","Imports":["a"]}`))
	require.NoError(t, err)
	assert.Equal(t, []string{"a"}, g["b"].Imports)
}
