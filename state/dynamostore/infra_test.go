package dynamostore_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/assert/yaml"
	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/state/dynamostore"
)

// tableShape is what counts of a table.
type tableShape struct {
	Billing         string
	Attributes      map[string]string
	Key             []string
	Index           string
	IndexKey        []string
	IndexProjection string
	TTL             string
}

func shapeOf(in *dynamodb.CreateTableInput) tableShape {
	s := tableShape{Billing: string(in.BillingMode), Attributes: map[string]string{}, TTL: "expiration"}
	for _, a := range in.AttributeDefinitions {
		s.Attributes[*a.AttributeName] = string(a.AttributeType)
	}
	for _, k := range in.KeySchema {
		s.Key = append(s.Key, *k.AttributeName+" "+string(k.KeyType))
	}
	for _, i := range in.GlobalSecondaryIndexes {
		s.Index, s.IndexProjection = aws.ToString(i.IndexName), string(i.Projection.ProjectionType)
		for _, k := range i.KeySchema {
			s.IndexKey = append(s.IndexKey, *k.AttributeName+" "+string(k.KeyType))
		}
	}
	return s
}

func infra(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "..", "docs", "infra", name))
	require.NoError(t, err)
	return string(b)
}

// methods are the operations of an interface, as a policy names them.
func methods[T any]() (names []string) {
	typ := reflect.TypeFor[T]()
	for i := range typ.NumMethod() {
		names = append(names, "dynamodb:"+typ.Method(i).Name)
	}
	return names
}

// grants are the actions of a policy by what they are for, checked against what the code calls.
func checkGrants(t *testing.T, grants map[string][]string) {
	t.Helper()
	assert.Equal(t, map[string][]string{
		"Records": methods[dynamostore.Client](), "OpenRuns": {"dynamodb:Query"}, "Check": methods[dynamostore.Describer](),
	}, grants)
}

func wanted(t *testing.T) tableShape {
	t.Helper()
	in, err := dynamostore.TableInput("sagas")
	require.NoError(t, err)
	return shapeOf(in)
}

type cfnStatement struct {
	Sid, Effect string
	Action      []string
	Resource    string
}

type cfnKey struct {
	AttributeName, KeyType string
}

func TestCloudFormationMakesTheSameTable(t *testing.T) {
	var raw map[string]any
	require.NoError(t, yaml.Unmarshal([]byte(infra(t, "cloudformation.yaml")), &raw))
	b, err := json.Marshal(raw)
	require.NoError(t, err)
	var template struct {
		Resources struct {
			SagaTable struct {
				Type, DeletionPolicy string
				Properties           struct {
					BillingMode            string
					AttributeDefinitions   []struct{ AttributeName, AttributeType string }
					KeySchema              []cfnKey
					GlobalSecondaryIndexes []struct {
						IndexName  string
						KeySchema  []cfnKey
						Projection struct{ ProjectionType string }
					}
					TimeToLiveSpecification struct {
						AttributeName string
						Enabled       bool
					}
				}
			}
			SagaPolicy struct {
				Properties struct {
					PolicyDocument struct{ Statement []cfnStatement }
				}
			}
		}
	}
	require.NoError(t, json.Unmarshal(b, &template))
	table := template.Resources.SagaTable
	assert.Equal(t, "AWS::DynamoDB::Table", table.Type)
	assert.Equal(t, "Retain", table.DeletionPolicy)
	props := table.Properties
	require.Len(t, props.GlobalSecondaryIndexes, 1)
	index := props.GlobalSecondaryIndexes[0]
	got := tableShape{Billing: props.BillingMode, Attributes: map[string]string{}, Index: index.IndexName, IndexProjection: index.Projection.ProjectionType}
	for _, a := range props.AttributeDefinitions {
		got.Attributes[a.AttributeName] = a.AttributeType
	}
	for _, k := range props.KeySchema {
		got.Key = append(got.Key, k.AttributeName+" "+k.KeyType)
	}
	for _, k := range index.KeySchema {
		got.IndexKey = append(got.IndexKey, k.AttributeName+" "+k.KeyType)
	}
	if props.TimeToLiveSpecification.Enabled {
		got.TTL = props.TimeToLiveSpecification.AttributeName
	}
	assert.Equal(t, wanted(t), got)

	grants := map[string][]string{}
	for _, s := range template.Resources.SagaPolicy.Properties.PolicyDocument.Statement {
		assert.Equal(t, "Allow", s.Effect)
		grants[s.Sid] = s.Action
		assert.Equal(t, s.Sid == "OpenRuns", s.Resource == "${SagaTable.Arn}/index/"+index.IndexName, s.Resource)
	}
	checkGrants(t, grants)
}

func TestThePolicyAllowsWhatTheStoreCallsAndNoMore(t *testing.T) {
	var policy struct{ Statement []cfnStatement }
	require.NoError(t, json.Unmarshal([]byte(infra(t, "policy.json")), &policy))
	grants := map[string][]string{}
	for _, s := range policy.Statement {
		grants[s.Sid] = s.Action
		assert.Equal(t, "Allow", s.Effect)
		assert.True(t, strings.HasPrefix(s.Resource, "arn:aws:dynamodb:REGION:ACCOUNT:table/TABLE"))
		assert.Equal(t, s.Sid == "OpenRuns", strings.HasSuffix(s.Resource, "/index/open"))
	}
	checkGrants(t, grants)
}

// block is a block of Terraform's language, as far as docs/infra uses it: one attribute a line.
type block struct {
	kind   string
	labels []string
	attrs  map[string]string
	blocks []*block
}

func parseTerraform(t *testing.T, text string) *block {
	t.Helper()
	stack := []*block{{attrs: map[string]string{}}}
	for line := range strings.SplitSeq(text, "\n") {
		line = strings.TrimSpace(line)
		top := stack[len(stack)-1]
		switch {
		case line == "" || line[0] == '#':
		case line == "}":
			require.Greater(t, len(stack), 1, "too many closing braces")
			stack = stack[:len(stack)-1]
		case strings.HasSuffix(line, "{"):
			words := strings.Fields(strings.ReplaceAll(strings.TrimSuffix(line, "{"), `"`, ""))
			b := &block{kind: words[0], labels: words[1:], attrs: map[string]string{}}
			top.blocks, stack = append(top.blocks, b), append(stack, b)
		default:
			name, value, ok := strings.Cut(line, "=")
			require.True(t, ok, line)
			top.attrs[strings.TrimSpace(name)] = strings.Trim(strings.TrimSpace(value), `"`)
		}
	}
	require.Len(t, stack, 1, "a block is open")
	return stack[0]
}

func (b *block) all(kind string) (found []*block) {
	for _, c := range b.blocks {
		if c.kind == kind {
			found = append(found, c)
		}
	}
	return found
}

func (b *block) one(t *testing.T, kind string) *block {
	t.Helper()
	found := b.all(kind)
	require.Len(t, found, 1, kind)
	return found[0]
}

func TestTerraformMakesTheSameTable(t *testing.T) {
	root := parseTerraform(t, infra(t, "terraform.tf"))
	resources := root.all("resource")
	at := slices.IndexFunc(resources, func(b *block) bool { return b.labels[0] == "aws_dynamodb_table" })
	require.GreaterOrEqual(t, at, 0)
	table := resources[at]
	index, ttl := table.one(t, "global_secondary_index"), table.one(t, "ttl")
	got := tableShape{
		Billing: table.attrs["billing_mode"], Attributes: map[string]string{},
		Key:   []string{table.attrs["hash_key"] + " HASH", table.attrs["range_key"] + " RANGE"},
		Index: index.attrs["name"], IndexProjection: index.attrs["projection_type"],
		IndexKey: []string{index.attrs["hash_key"] + " HASH", index.attrs["range_key"] + " RANGE"},
	}
	for _, a := range table.all("attribute") {
		got.Attributes[a.attrs["name"]] = a.attrs["type"]
	}
	if ttl.attrs["enabled"] == "true" {
		got.TTL = ttl.attrs["attribute_name"]
	}
	assert.Equal(t, wanted(t), got)
	assert.Equal(t, "true", table.attrs["deletion_protection_enabled"])

	grants := map[string][]string{}
	for _, s := range root.one(t, "data").all("statement") {
		var actions []string
		require.NoError(t, json.Unmarshal([]byte(s.attrs["actions"]), &actions))
		grants[s.attrs["sid"]] = actions
		assert.Equal(t, s.attrs["sid"] == "OpenRuns", strings.Contains(s.attrs["resources"], "/index/open"))
	}
	checkGrants(t, grants)
}
