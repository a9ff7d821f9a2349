package dynamostore

import (
	"fmt"
	"strconv"

	"github.com/tsuzuki-go/tsuzuki/state"
)

const (
	// maxItem is DynamoDB's limit on an item, in bytes, names included.
	maxItem = 400 << 10
	// maxValue is the most bytes of a payload: what an item of its own has room for beside a key of the greatest length.
	maxValue = maxItem - 2<<10
)

// sibling is an item that holds one payload.
type sibling struct {
	part string
	data []byte
}

// placer decides for each payload of one write where it goes.
type placer struct {
	runKey   string
	writeID  string
	siblings []sibling
	err      error
}

// place puts raw into the header if it fits there, otherwise into a sibling.
func (p *placer) place(part string, raw []byte, fits bool) where {
	if fits {
		return where{}
	}
	if len(raw) > maxValue && p.err == nil {
		p.err = fmt.Errorf("dynamostore: run %s: %s has %d bytes, at most %d are possible: %w",
			p.runKey, part, len(raw), maxValue, state.ErrTooLarge)
	}
	at := where{sibling: true, writeID: p.writeID}
	p.siblings = append(p.siblings, sibling{part: at.part(part), data: raw})
	return at
}

// part is the sort key of the sibling that holds this part of the record.
func (w where) part(of string) string { return siblingPrefix + of + "/" + w.writeID }

// What a sibling may hold.
const (
	inputPart    = "input"
	responsePart = "response"
)

func stepPart(index int) string       { return "step/" + strconv.Itoa(index) }
func messagePart(seq sequence) string { return "message/" + seq.String() }
