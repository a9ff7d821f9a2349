package dynamotest

import (
	"encoding/json"
	"net/http"
	"sync"
)

// ttls is by which attribute the items of a table expire. Nothing does expire.
type ttls struct {
	mu        sync.Mutex
	attribute map[string]string
}

func (p *Proxy) timeToLive(call Request, r *http.Request) *response {
	var in struct {
		TableName               string `json:"TableName"`
		TimeToLiveSpecification struct {
			AttributeName string `json:"AttributeName"`
			Enabled       bool   `json:"Enabled"`
		} `json:"TimeToLiveSpecification"`
	}
	if json.Unmarshal(call.Body, &in) != nil {
		return nil
	}
	body, err := json.Marshal(map[string]string{"TableName": in.TableName})
	if err != nil {
		return nil
	}
	if res := p.forward(Request{Operation: "DescribeTable", Body: body}, r); res == nil || res.status != http.StatusOK {
		return res // there is no such table
	}
	p.ttl.mu.Lock()
	defer p.ttl.mu.Unlock()
	if p.ttl.attribute == nil {
		p.ttl.attribute = map[string]string{}
	}
	attribute, on := p.ttl.attribute[in.TableName]
	if call.Operation == "DescribeTimeToLive" {
		d := map[string]string{"TimeToLiveStatus": "DISABLED"}
		if on {
			d = map[string]string{"TimeToLiveStatus": "ENABLED", "AttributeName": attribute}
		}
		return jsonResponse(http.StatusOK, map[string]any{"TimeToLiveDescription": d})
	}
	switch spec := in.TimeToLiveSpecification; {
	case spec.Enabled && on:
		return errorResponse(Answer{http.StatusBadRequest, "ValidationException", "TimeToLive is already enabled"})
	case spec.Enabled:
		p.ttl.attribute[in.TableName] = spec.AttributeName
	default:
		delete(p.ttl.attribute, in.TableName)
	}
	return jsonResponse(http.StatusOK, map[string]any{"TimeToLiveSpecification": in.TimeToLiveSpecification})
}
