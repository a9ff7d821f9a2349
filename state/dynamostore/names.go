package dynamostore

import (
	"fmt"
	"slices"
)

// names are the attributes' names in the table.
type names struct {
	Key, Part                                          string
	Operation, Version, RecordVersion, Retention, Plan string
	Status, EndsAs, CurrentStep, Steps, PayloadHash    string
	Input, Response, Failure                           string
	Owner, WriteID, Run, Lease, NotBefore, Cancel      string
	Expiration, Revision, CreatedAt, UpdatedAt         string
	Outbox, RelayWriteID, Audit                        string
	OpenShard                                          string
	Data                                               string // of a sibling
	index                                              string
}

func standardNames() names {
	return names{
		Key: "idempotency_key", Part: "part",
		Operation: "operation", Version: "version", RecordVersion: "record_version", Retention: "retention", Plan: "plan",
		Status: "status", EndsAs: "ends_as", CurrentStep: "current_step", Steps: "steps", PayloadHash: "payload_hash",
		Input: "input", Response: "response_data", Failure: "failure",
		Owner: "owner", WriteID: "write_id", Run: "run", Lease: "in_progress_expiration", NotBefore: "not_before", Cancel: "cancel",
		Expiration: "expiration", Revision: "revision", CreatedAt: "created_at", UpdatedAt: "updated_at",
		Outbox: "outbox", RelayWriteID: "relay_write_id", Audit: "audit",
		OpenShard: "open_shard", Data: "data", index: "open",
	}
}

// all are the attributes' names, each to be looked at or set.
func (n *names) all() []*string {
	return []*string{
		&n.Key, &n.Part, &n.Operation, &n.Version, &n.RecordVersion, &n.Retention, &n.Plan, &n.Status, &n.EndsAs,
		&n.CurrentStep, &n.Steps, &n.PayloadHash, &n.Input, &n.Response, &n.Failure, &n.Owner, &n.WriteID, &n.Run, &n.Lease,
		&n.NotBefore, &n.Cancel, &n.Expiration, &n.Revision, &n.CreatedAt, &n.UpdatedAt, &n.Outbox, &n.RelayWriteID,
		&n.Audit, &n.OpenShard, &n.Data,
	}
}

// rename gives the attribute that is called standard another name.
func (n *names) rename(standard, name string) error {
	if name == "" || len(name) > 255 {
		return fmt.Errorf("dynamostore: attribute %q: a name has 1 to 255 bytes, got %d", standard, len(name))
	}
	original := standardNames()
	at := slices.IndexFunc(original.all(), func(s *string) bool { return *s == standard })
	if at < 0 {
		return fmt.Errorf("dynamostore: there is no attribute %q", standard)
	}
	*n.all()[at] = name
	return nil
}

func (n *names) check() error {
	seen := map[string]bool{}
	for _, s := range n.all() {
		if seen[*s] {
			return fmt.Errorf("dynamostore: two attributes are named %q", *s)
		}
		seen[*s] = true
	}
	return nil
}

// The values of the part attribute.
const (
	headerPart    = "run"
	siblingPrefix = "/"
)

// The keys of the relay's claim in the outbox map. Those of messages begin with a slash or an equals sign.
const (
	claimToken = "token"
	claimUntil = "until"
)
