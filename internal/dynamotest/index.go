package dynamotest

import (
	"encoding/json"
	"net/http"
	"sync"
)

// indexes makes queries of indexes answer as they did before.
type indexes struct {
	mu     sync.Mutex
	frozen bool
	seen   map[string]*response
}

// FreezeIndexes lets indexes lag behind: while it is on, a query of an index is answered as the same query, its limit
// left aside, was before, or with nothing if it was not made before.
func (p *Proxy) FreezeIndexes(on bool) {
	p.index.mu.Lock()
	defer p.index.mu.Unlock()
	p.index.frozen = on
	if !on {
		p.index.seen = nil
	}
}

func (p *Proxy) query(call Request, r *http.Request) *response {
	var in map[string]any
	if json.Unmarshal(call.Body, &in) != nil || in["IndexName"] == nil {
		return p.forward(call, r)
	}
	delete(in, "Limit")
	same, err := json.Marshal(in)
	if err != nil {
		return nil
	}
	p.index.mu.Lock()
	defer p.index.mu.Unlock()
	if p.index.frozen {
		if res := p.index.seen[string(same)]; res != nil {
			return res
		}
		return jsonResponse(http.StatusOK, map[string]any{"Count": 0, "ScannedCount": 0, "Items": []any{}})
	}
	res := p.forward(call, r)
	if p.index.seen == nil {
		p.index.seen = map[string]*response{}
	}
	p.index.seen[string(same)] = res
	return res
}
