package dynamotest

import (
	"encoding/json"
	"net/http"
)

const conditionFailed = "ConditionalCheckFailedException"

// withOldItem adds the old item to the failure of a write that has asked for it, or takes it away.
func (p *Proxy) withOldItem(call Request, r *http.Request, res *response) *response {
	if res.code() != conditionFailed {
		return res
	}
	var failure map[string]json.RawMessage
	var asked struct {
		TableName                           string                     `json:"TableName"`
		Key                                 map[string]json.RawMessage `json:"Key"`
		Item                                map[string]json.RawMessage `json:"Item"`
		ReturnValuesOnConditionCheckFailure string                     `json:"ReturnValuesOnConditionCheckFailure"`
	}
	if json.Unmarshal(res.body, &failure) != nil || json.Unmarshal(call.Body, &asked) != nil {
		return nil
	}
	if !p.allOld {
		delete(failure, "Item")
		return jsonResponse(res.status, failure)
	}
	if failure["Item"] != nil || asked.ReturnValuesOnConditionCheckFailure != "ALL_OLD" {
		return res
	}
	key := asked.Key
	if key == nil {
		key = p.keyOf(asked.TableName, asked.Item, r)
	}
	var found struct{ Item json.RawMessage }
	if !p.ask("GetItem", r, map[string]any{"TableName": asked.TableName, "Key": key, "ConsistentRead": true}, &found) {
		return nil
	}
	if len(found.Item) > 0 {
		failure["Item"] = found.Item
	}
	return jsonResponse(res.status, failure)
}

// keyOf is the part of an item that is the table's key.
func (p *Proxy) keyOf(table string, item map[string]json.RawMessage, r *http.Request) map[string]json.RawMessage {
	var described struct {
		Table struct {
			KeySchema []struct{ AttributeName string }
		}
	}
	if !p.ask("DescribeTable", r, map[string]string{"TableName": table}, &described) {
		return nil
	}
	key := map[string]json.RawMessage{}
	for _, k := range described.Table.KeySchema {
		key[k.AttributeName] = item[k.AttributeName]
	}
	return key
}

// ask makes a call of the proxy's own, with the headers of the client's.
func (p *Proxy) ask(operation string, r *http.Request, in, out any) bool {
	body, err := json.Marshal(in)
	if err != nil {
		return false
	}
	res := p.forward(Request{Operation: operation, Body: body}, r)
	return res != nil && res.status == http.StatusOK && json.Unmarshal(res.body, out) == nil
}
