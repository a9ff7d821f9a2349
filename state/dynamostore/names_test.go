package dynamostore_test

import (
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/assert"

	"github.com/tsuzuki-go/tsuzuki/internal/dynamotest"
	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/state/dynamostore"
	"github.com/tsuzuki-go/tsuzuki/state/statetest"
)

// foreign gives every attribute and the index names that are reserved, or need quoting.
func foreign() []dynamostore.Option {
	opts := []dynamostore.Option{dynamostore.WithIndex("open-runs.v2")}
	for i, standard := range dynamostore.StandardNames() {
		name := []string{"size", "name", "value", "data", "date", "count", "order", "key"}[i%8]
		opts = append(opts, dynamostore.WithAttribute(standard, name+" #"+standard))
	}
	return append(opts, dynamostore.WithAttribute("owner", "status"), dynamostore.WithAttribute("status", "owner"))
}

func TestStoreUnderOtherNames(t *testing.T) {
	p := dynamotest.Start(t, true)
	statetest.Run(t, func(t *testing.T) state.Store { return newStore(t, p, foreign()...) }, statetest.Sequences(4))
}

// The names of the design, as a user of the table sees them.
func TestTheHeadersNames(t *testing.T) {
	p := dynamotest.Start(t, true)
	s := newStore(t, p)
	r := newCostlyRun(2, 100, 60)
	r.Pivot = r.Plan[1]
	r.create(t, s)
	r.commit(t, s, r.step(0))
	it := items(t, p, s, r.Key)["run"]
	var names []string
	for name := range it {
		names = append(names, name)
	}
	assert.ElementsMatch(t, []string{
		"idempotency_key", "part", "operation", "version", "record_version", "retention", "plan", "status", "current_step", "steps",
		"payload_hash", "input", "owner", "write_id", "run", "in_progress_expiration", "revision", "created_at", "updated_at", "outbox", "open_shard",
	}, names)
	assert.Equal(t, &types.AttributeValueMemberS{Value: "IN_PROGRESS"}, it["status"])
	assert.Equal(t, &types.AttributeValueMemberS{Value: r.Plan[0] + "," + r.Plan[1] + "!"}, it["plan"])
	assert.Equal(t, &types.AttributeValueMemberM{Value: map[string]types.AttributeValue{
		"0": &types.AttributeValueMemberS{Value: "D1|0+240|" + r.result}, "1": &types.AttributeValueMemberS{Value: "P"},
	}}, it["steps"])
}
