package main

import (
	"context"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/assert/yaml"
	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/saga/sagalambda"
)

// template is the SAM template of docs/lambda.md, as far as the tests look into it.
type template struct {
	Transform  string
	Parameters map[string]any
	Resources  map[string]struct {
		Type       string
		Properties struct {
			Timeout                int // of a function, in seconds
			VisibilityTimeout      int
			MessageRetentionPeriod int
			RedrivePolicy          struct {
				DeadLetterTargetARN string `json:"deadLetterTargetArn"`
				MaxReceiveCount     int    `json:"maxReceiveCount"`
			}
			Environment struct{ Variables map[string]string }
			Events      map[string]struct {
				Type       string
				Properties struct {
					Queue                 string
					BatchSize             int
					FunctionResponseTypes []string
					Schedule              string
				}
			}
		}
	}
}

func parseTemplate(t *testing.T, text string) (parsed template) {
	t.Helper()
	var raw map[string]any
	require.NoError(t, yaml.Unmarshal([]byte(text), &raw))
	b, err := json.Marshal(raw)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(b, &parsed))
	return parsed
}

// samTemplate is the template as it is deployed: that of docs/lambda.md, with the table's.
func samTemplate(t *testing.T) (parsed template, text string) {
	t.Helper()
	docs := filepath.Join("..", "..", "..", "docs")
	page, err := os.ReadFile(filepath.Join(docs, "lambda.md"))
	require.NoError(t, err)
	table, err := os.ReadFile(filepath.Join(docs, "infra", "cloudformation.yaml"))
	require.NoError(t, err)
	blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllSubmatch(page, -1)
	require.Len(t, blocks, 1)
	text = string(blocks[0][1])
	parsed = parseTemplate(t, text)
	whole := parseTemplate(t, string(table))
	for name, r := range whole.Resources {
		require.NotContains(t, parsed.Resources, name)
		parsed.Resources[name] = r
	}
	parsed.Parameters = whole.Parameters
	return parsed, text + string(table)
}

func TestTheTemplateNamesWhatIsThere(t *testing.T) {
	sam, text := samTemplate(t)
	assert.Equal(t, "AWS::Serverless-2016-10-31", sam.Transform)
	there := slices.Sorted(maps.Keys(sam.Resources))
	there = append(there, slices.Sorted(maps.Keys(sam.Parameters))...)
	references := regexp.MustCompile(`!(?:Ref|GetAtt) (\w+)|\$\{(\w+)`).FindAllStringSubmatch(text, -1)
	assert.Greater(t, len(references), 10)
	for _, r := range references {
		assert.Contains(t, there, r[1]+r[2], r[0])
	}
}

// The functions get the handlers that their events need, by variables that the program reads.
func TestTheTemplatesFunctionsAreThisProgram(t *testing.T) {
	sam, _ := samTemplate(t)
	asked := map[string]bool{}
	handlerOf := func(variables map[string]string) any {
		handler, closeAll, err := newHandler(t.Context(), func(name string) string { asked[name] = true; return variables[name] })
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, closeAll()) })
		return handler
	}
	checkout, sweep := sam.Resources["Checkout"].Properties, sam.Resources["Sweep"].Properties
	assert.IsType(t, (func(context.Context, events.SQSEvent) (events.SQSEventResponse, error))(nil), handlerOf(checkout.Environment.Variables))
	assert.IsType(t, (func(context.Context, json.RawMessage) (sagalambda.Swept, error))(nil), handlerOf(sweep.Environment.Variables))
	for _, f := range []map[string]string{checkout.Environment.Variables, sweep.Environment.Variables} {
		assert.Equal(t, "SagaTable", f["PAYMENT_TABLE"], "on Lambda, environments share no disk")
		for name := range f {
			assert.True(t, asked[name], "nothing reads %s", name)
		}
	}
	doc, err := os.ReadFile("doc.go")
	require.NoError(t, err)
	for name := range asked {
		assert.Contains(t, string(doc), "//   - "+name+": ")
	}
}

// What docs/lambda.md says of timeouts, counts and retention holds in its own template.
func TestTheTemplateKeepsItsOwnRules(t *testing.T) {
	sam, _ := samTemplate(t)
	queue, dead := sam.Resources["Orders"].Properties, sam.Resources["OrdersDead"].Properties
	checkout, sweep := sam.Resources["Checkout"].Properties, sam.Resources["Sweep"].Properties
	assert.GreaterOrEqual(t, queue.VisibilityTimeout, 6*checkout.Timeout)
	assert.GreaterOrEqual(t, time.Duration(queue.VisibilityTimeout)*time.Second, saga.DefaultLease)
	assert.GreaterOrEqual(t, queue.RedrivePolicy.MaxReceiveCount, 5)
	assert.Greater(t, queue.RedrivePolicy.MaxReceiveCount, 60/queue.VisibilityTimeout)
	assert.Equal(t, "OrdersDead.Arn", queue.RedrivePolicy.DeadLetterTargetARN)
	assert.Less(t, time.Duration(queue.MessageRetentionPeriod+dead.MessageRetentionPeriod)*time.Second, saga.DefaultRetention)
	source := checkout.Events["Orders"]
	assert.Equal(t, "SQS", source.Type)
	assert.Equal(t, "Orders.Arn", source.Properties.Queue)
	assert.Equal(t, []string{"ReportBatchItemFailures"}, source.Properties.FunctionResponseTypes)
	assert.LessOrEqual(t, source.Properties.BatchSize, 10)
	assert.Equal(t, "Schedule", sweep.Events["EveryMinute"].Type)
	assert.Equal(t, "rate(1 minute)", sweep.Events["EveryMinute"].Properties.Schedule)
	assert.Less(t, sweep.Timeout, 60, "one has ended when the next begins")
}
