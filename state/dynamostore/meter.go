package dynamostore

import (
	"context"
	"maps"
	"strings"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// Meter counts the requests of a store and the capacity units that they consume. Put it between the store and its client:
//
//	meter, err := dynamostore.NewMeter(client)
//	store, err := dynamostore.New(meter, "sagas")
//
// It asks the server for the units (ReturnConsumedCapacity). The server does not report those of a refused conditional
// write: they are computed from the size of the item that refused it, or taken as 1 when that did not come along. Where
// it does not report those of the index either, as local servers don't, they are computed from whether the write took the
// item into the index or out of it; for that it asks for the item as it was before a write, which costs no units. A request that the SDK has
// sent more than once counts once. Its methods may be called concurrently.
type Meter struct {
	client Client
	config

	mu sync.Mutex
	r  Report
}

var _ Client = (*Meter)(nil)

// Report is what a [Meter] has counted.
type Report struct {
	// Requests by operation, such as "UpdateItem".
	Requests map[string]int
	// Refused is how many of the writes were refused by their condition.
	Refused int
	// WriteUnits are the write request units of the table, the index and the refused writes together. One is a write of
	// up to 1 KB.
	WriteUnits float64
	// IndexUnits are those of WriteUnits that went into the index.
	IndexUnits float64
	// RefusedUnits are those of WriteUnits that refused writes took.
	RefusedUnits float64
	// ReadUnits are the read request units. One is a consistent read of up to 4 KB.
	ReadUnits float64
}

// NewMeter makes a meter. The options are those of the store.
func NewMeter(client Client, opts ...Option) (*Meter, error) {
	c, err := newConfig(opts)
	if err != nil {
		return nil, err
	}
	m := &Meter{client: client, config: c}
	m.Reset()
	return m, nil
}

// Report is what was counted since the start or the last Reset.
func (m *Meter) Report() Report {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.r
	r.Requests = maps.Clone(r.Requests)
	return r
}

// Reset starts counting anew.
func (m *Meter) Reset() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.r = Report{Requests: map[string]int{}}
}

// Unwrap is the client that the meter sits on.
func (m *Meter) Unwrap() Client { return m.client }

func (m *Meter) count(operation string, add func(r *Report)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.r.Requests[operation]++
	add(&m.r)
}

func total(c *types.ConsumedCapacity) float64 {
	if c == nil {
		return 0
	}
	return aws.ToFloat64(c.CapacityUnits)
}

// write counts a write: c is what the server has reported, and index what is computed for the index.
func (m *Meter) write(operation string, err error, c *types.ConsumedCapacity, index func() float64) {
	m.count(operation, func(r *Report) {
		if err != nil {
			if it, ok := refused(err); ok {
				units := writeUnits(itemSize(it))
				r.Refused++
				r.WriteUnits, r.RefusedUnits = r.WriteUnits+units, r.RefusedUnits+units
			}
			return
		}
		r.WriteUnits += total(c)
		if c != nil && len(c.GlobalSecondaryIndexes) > 0 {
			for _, i := range c.GlobalSecondaryIndexes {
				r.IndexUnits += aws.ToFloat64(i.CapacityUnits)
			}
			return
		}
		units := index()
		r.WriteUnits, r.IndexUnits = r.WriteUnits+units, r.IndexUnits+units
	})
}

// writeUnits is a unit for each KB begun, and at least one.
func writeUnits(bytes int) float64 { return float64(max(1, (bytes+1023)/1024)) }

// entry is the units of taking the item into the index or out of it; 0 for one that is not in it.
func (m *Meter) entry(it item) float64 {
	if !m.indexed || it[m.OpenShard] == nil {
		return 0
	}
	size := 0
	for _, name := range []string{m.OpenShard, m.CreatedAt, m.Key, m.Part} {
		if v := it[name]; v != nil {
			size += len(name) + valueSize(v)
		}
	}
	return writeUnits(size)
}

// PutItem sends the request and counts it.
func (m *Meter) PutItem(ctx context.Context, in *dynamodb.PutItemInput, opts ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error) {
	asked := *in
	asked.ReturnConsumedCapacity = types.ReturnConsumedCapacityIndexes
	out, err := m.client.PutItem(ctx, &asked, opts...)
	var c *types.ConsumedCapacity
	if err == nil {
		c = out.ConsumedCapacity
	}
	m.write("PutItem", err, c, func() float64 { return m.entry(in.Item) })
	return out, err
}

// UpdateItem sends the request and counts it.
func (m *Meter) UpdateItem(ctx context.Context, in *dynamodb.UpdateItemInput, opts ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error) {
	asked := *in
	asked.ReturnConsumedCapacity = types.ReturnConsumedCapacityIndexes
	forMeter := in.ReturnValues == "" || in.ReturnValues == types.ReturnValueNone
	if forMeter {
		asked.ReturnValues = types.ReturnValueAllOld
	}
	out, err := m.client.UpdateItem(ctx, &asked, opts...)
	var c *types.ConsumedCapacity
	var returned item
	if err == nil {
		c, returned = out.ConsumedCapacity, out.Attributes
		if forMeter {
			out.Attributes = nil
		}
	}
	m.write("UpdateItem", err, c, func() float64 { return m.moved(&asked, returned) })
	return out, err
}

// moved is the units of the index for an update: of taking the item in or out, 0 when it stays where it is. It knows the
// expressions that the store writes.
func (m *Meter) moved(in *dynamodb.UpdateItemInput, returned item) float64 {
	placeholder := ""
	for p, name := range in.ExpressionAttributeNames {
		if name == m.OpenShard {
			placeholder = p
		}
	}
	if placeholder == "" {
		return 0
	}
	_, removes, _ := strings.Cut(*in.UpdateExpression, "REMOVE ")
	leaves := strings.Contains(","+removes+",", ","+placeholder+",")
	wasIn := returned[m.OpenShard] != nil
	switch {
	case in.ReturnValues == types.ReturnValueAllOld && leaves && wasIn:
		return m.entry(returned)
	case in.ReturnValues == types.ReturnValueAllOld && !leaves && !wasIn:
		return 1
	case in.ReturnValues == types.ReturnValueAllNew && leaves: // whether it was in does not show; it mostly was
		return 1
	}
	return 0
}

// DeleteItem sends the request and counts it.
func (m *Meter) DeleteItem(ctx context.Context, in *dynamodb.DeleteItemInput, opts ...func(*dynamodb.Options)) (*dynamodb.DeleteItemOutput, error) {
	asked := *in
	asked.ReturnConsumedCapacity = types.ReturnConsumedCapacityIndexes
	asked.ReturnValues = types.ReturnValueAllOld
	out, err := m.client.DeleteItem(ctx, &asked, opts...)
	var c *types.ConsumedCapacity
	var old item
	if err == nil {
		c, old = out.ConsumedCapacity, out.Attributes
		if in.ReturnValues != types.ReturnValueAllOld {
			out.Attributes = nil
		}
	}
	m.write("DeleteItem", err, c, func() float64 { return m.entry(old) })
	return out, err
}

// GetItem sends the request and counts it.
func (m *Meter) GetItem(ctx context.Context, in *dynamodb.GetItemInput, opts ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error) {
	asked := *in
	asked.ReturnConsumedCapacity = types.ReturnConsumedCapacityTotal
	out, err := m.client.GetItem(ctx, &asked, opts...)
	m.count("GetItem", func(r *Report) {
		if err == nil {
			r.ReadUnits += total(out.ConsumedCapacity)
		}
	})
	return out, err
}

// BatchGetItem sends the request and counts it.
func (m *Meter) BatchGetItem(ctx context.Context, in *dynamodb.BatchGetItemInput, opts ...func(*dynamodb.Options)) (*dynamodb.BatchGetItemOutput, error) {
	asked := *in
	asked.ReturnConsumedCapacity = types.ReturnConsumedCapacityTotal
	out, err := m.client.BatchGetItem(ctx, &asked, opts...)
	m.count("BatchGetItem", func(r *Report) {
		if err == nil {
			for i := range out.ConsumedCapacity {
				r.ReadUnits += total(&out.ConsumedCapacity[i])
			}
		}
	})
	return out, err
}

// Query sends the request and counts it.
func (m *Meter) Query(ctx context.Context, in *dynamodb.QueryInput, opts ...func(*dynamodb.Options)) (*dynamodb.QueryOutput, error) {
	asked := *in
	asked.ReturnConsumedCapacity = types.ReturnConsumedCapacityTotal
	out, err := m.client.Query(ctx, &asked, opts...)
	m.count("Query", func(r *Report) {
		if err == nil {
			r.ReadUnits += total(out.ConsumedCapacity)
		}
	})
	return out, err
}
