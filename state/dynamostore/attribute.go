package dynamostore

import (
	"fmt"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tsuzuki-go/tsuzuki/state"
)

// item is an item of the table.
type item = map[string]types.AttributeValue

func str(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }

func num(n int64) types.AttributeValue {
	return &types.AttributeValueMemberN{Value: strconv.FormatInt(n, 10)}
}

func list(values []types.AttributeValue) types.AttributeValue {
	return &types.AttributeValueMemberL{Value: values}
}

func mapOf(m item) types.AttributeValue { return &types.AttributeValueMemberM{Value: m} }

// refKey is where, in the place of a payload, the write ID of its sibling stands.
const refKey = "at"

// payloadValue is a payload of the header itself.
func payloadValue(raw []byte, at where) types.AttributeValue {
	if at.sibling {
		return mapOf(item{refKey: str(at.writeID)})
	}
	return str(string(raw))
}

// inlineLimit is the length in bytes up to which a payload lives in the header. About there a sibling of its own costs as
// much as carrying the payload through the writes that follow; docs/dynamodb.md has the sum.
const inlineLimit = 256

// inlines tells whether a payload may live in the header, as a string.
func inlines(raw []byte) bool { return len(raw) <= inlineLimit && utf8.Valid(raw) }

// reader reads attributes and keeps the first error.
type reader struct {
	it  item
	err error
}

func (r *reader) fail(name string, v types.AttributeValue) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: attribute %s is a %T", state.ErrCorrupt, name, v)
	}
}

func (r *reader) str(name string) string {
	switch v := r.it[name].(type) {
	case nil:
	case *types.AttributeValueMemberS:
		return v.Value
	default:
		r.fail(name, v)
	}
	return ""
}

// num is the attribute's value; ok is false when there is none.
func (r *reader) num(name string) (n int64, ok bool) {
	switch v := r.it[name].(type) {
	case nil:
	case *types.AttributeValueMemberN:
		n, err := strconv.ParseInt(v.Value, 10, 64)
		if err != nil {
			r.fail(name, v)
		}
		return n, err == nil
	default:
		r.fail(name, v)
	}
	return 0, false
}

func (r *reader) int(name string) int {
	n, _ := r.num(name)
	if int64(int(n)) != n {
		r.fail(name, r.it[name])
	}
	return int(n)
}

func (r *reader) milli(name string) time.Time {
	if n, ok := r.num(name); ok {
		return time.UnixMilli(n).UTC()
	}
	return time.Time{}
}

func (r *reader) second(name string) time.Time {
	if n, ok := r.num(name); ok {
		return time.Unix(n, 0).UTC()
	}
	return time.Time{}
}

func (r *reader) mapOf(name string) item {
	switch v := r.it[name].(type) {
	case nil:
	case *types.AttributeValueMemberM:
		return v.Value
	default:
		r.fail(name, v)
	}
	return nil
}

// payload is the inverse of payloadValue; nil when there is no such attribute.
func (r *reader) payload(name string) (raw []byte, at where) {
	switch v := r.it[name].(type) {
	case nil:
	case *types.AttributeValueMemberS:
		return []byte(v.Value), where{}
	case *types.AttributeValueMemberB:
		return v.Value, where{}
	case *types.AttributeValueMemberM:
		if id, ok := v.Value[refKey].(*types.AttributeValueMemberS); ok {
			return nil, where{sibling: true, writeID: id.Value}
		}
		r.fail(name, v)
	default:
		r.fail(name, v)
	}
	return nil, where{}
}

// dataValue is a payload that has an item to itself.
func dataValue(raw []byte) types.AttributeValue {
	if utf8.Valid(raw) {
		return str(string(raw))
	}
	return &types.AttributeValueMemberB{Value: raw}
}

func numOf(digits string) types.AttributeValue { return &types.AttributeValueMemberN{Value: digits} }
