package dynamostore

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tsuzuki-go/tsuzuki/state"
)

// Check tells whether the table is what a store with these options needs: there and ACTIVE, its keys, the open index, and
// the expiry (TTL). The error lists all that is missing, and how to add it. For the start of a program: a wrong
// table is then found before the first run.
func Check(ctx context.Context, client Describer, table string, opts ...Option) error {
	c, err := newConfig(opts)
	if err != nil {
		return err
	}
	if client == nil {
		return errors.New("dynamostore: Check: the client is nil")
	}
	return c.check(ctx, client, table, true)
}

// Check is the function of this name, for the table of this store. The store's client must be a [Describer] too, or have a
// method Unwrap() Client that leads to one; otherwise it is ErrUnsupported.
func (s *Store) Check(ctx context.Context) error {
	var client any = s.client
	for {
		if d, ok := client.(Describer); ok {
			return s.check(ctx, d, s.table, true)
		}
		wrapper, ok := client.(interface{ Unwrap() Client })
		if ok {
			client = wrapper.Unwrap()
			continue
		}
		return fmt.Errorf("dynamostore: table %s: Check: the client is a %T, which has no DescribeTable and DescribeTimeToLive: %w", s.table, client, state.ErrUnsupported)
	}
}

// check looks at the table; expiry is left aside where the server has none.
func (c *config) check(ctx context.Context, client Describer, table string, expires bool) error {
	out, err := client.DescribeTable(ctx, &dynamodb.DescribeTableInput{TableName: &table})
	if err != nil {
		return adminError("describe", table, err)
	}
	var wrong []string
	add := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	t := out.Table
	if t == nil {
		t = &types.TableDescription{}
	}
	if t.TableStatus != types.TableStatusActive && t.TableStatus != types.TableStatusUpdating {
		add("it is %s; wait until it is ACTIVE", t.TableStatus)
	}
	attributes := attributeTypes(t)
	if got, want := keysOf(t.KeySchema, attributes), c.Key+" (S), "+c.Part+" (S)"; got != want {
		add("its key is %s, and should be %s; keys can't be changed, so make another table", got, want)
	}
	if c.indexed {
		c.checkIndex(t, attributes, add)
	}
	on := !expires
	if expires {
		if on, err = c.ttlSet(ctx, client, table); err != nil {
			return err
		}
	}
	if !on {
		add("nothing expires by %s; set it with UpdateTimeToLive (aws dynamodb update-time-to-live --table-name %s "+
			"--time-to-live-specification Enabled=true,AttributeName=%s)", c.Expiration, table, c.Expiration)
	}
	if len(wrong) > 0 {
		return fmt.Errorf("dynamostore: table %s is not as this store needs it: %s", table, strings.Join(wrong, "; "))
	}
	return nil
}

func (c *config) checkIndex(t *types.TableDescription, attributes map[string]string, add func(string, ...any)) {
	for _, i := range t.GlobalSecondaryIndexes {
		if aws.ToString(i.IndexName) != c.index {
			continue
		}
		if got, want := keysOf(i.KeySchema, attributes), c.OpenShard+" (N), "+c.CreatedAt+" (N)"; got != want {
			add("the key of index %s is %s, and should be %s; delete the index and add it anew", c.index, got, want)
		}
		if i.IndexStatus != types.IndexStatusActive {
			add("index %s is %s; wait until it is ACTIVE", c.index, i.IndexStatus)
		}
		return
	}
	add("there is no index %s; add a global secondary index of that name with the key %s (N), %s (N) and the projection "+
		"KEYS_ONLY by UpdateTable, or make the store WithoutIndex", c.index, c.OpenShard, c.CreatedAt)
}

func attributeTypes(t *types.TableDescription) map[string]string {
	m := map[string]string{}
	for _, d := range t.AttributeDefinitions {
		m[aws.ToString(d.AttributeName)] = string(d.AttributeType)
	}
	return m
}

func keysOf(schema []types.KeySchemaElement, attributes map[string]string) string {
	var parts []string
	for _, k := range schema {
		name := aws.ToString(k.AttributeName)
		parts = append(parts, name+" ("+attributes[name]+")")
	}
	return strings.Join(parts, ", ")
}
