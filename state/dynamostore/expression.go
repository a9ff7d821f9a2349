package dynamostore

import (
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// expression is an update and the condition on it. Every name and value has a placeholder, so that no reserved word and
// no name that a user chose can be in the way.
type expression struct {
	names  map[string]string
	values item

	sets, removes, conds []byte
	extra                int
}

func newExpression() *expression {
	return &expression{
		names: make(map[string]string, 24), values: make(item, 24),
		sets: make([]byte, 0, 256), removes: make([]byte, 0, 64), conds: make([]byte, 0, 128),
	}
}

// name gives the attribute a placeholder.
func (e *expression) name(placeholder, attribute string) string {
	e.names[placeholder] = attribute
	return placeholder
}

func (e *expression) value(placeholder string, v types.AttributeValue) string {
	e.values[placeholder] = v
	return placeholder
}

// fresh is a name's and a value's placeholder that are not used yet.
func (e *expression) fresh() (name, value string) {
	n := strconv.Itoa(e.extra)
	e.extra++
	return "#x" + n, ":x" + n
}

// set and remove take placeholders, or paths of them.
func (e *expression) set(path, operand string) {
	if len(e.sets) > 0 {
		e.sets = append(e.sets, ',')
	}
	e.sets = append(append(append(e.sets, path...), '='), operand...)
}

func (e *expression) remove(path string) {
	if len(e.removes) > 0 {
		e.removes = append(e.removes, ',')
	}
	e.removes = append(e.removes, path...)
}

// where adds a condition; all must hold.
func (e *expression) where(condition string) {
	if len(e.conds) > 0 {
		e.conds = append(e.conds, " AND "...)
	}
	e.conds = append(e.conds, condition...)
}

// child is the path of a key of a map attribute, under a placeholder of its own.
func (e *expression) child(path, key string) string {
	name, _ := e.fresh()
	return path + "." + e.name(name, key)
}

func (e *expression) update() string {
	out := make([]byte, 0, len(e.sets)+len(e.removes)+16)
	if len(e.sets) > 0 {
		out = append(append(out, "SET "...), e.sets...)
	}
	if len(e.removes) > 0 {
		if len(out) > 0 {
			out = append(out, ' ')
		}
		out = append(append(out, "REMOVE "...), e.removes...)
	}
	return string(out)
}

func (e *expression) condition() string { return string(e.conds) }

// text and milli set an attribute, or remove it when it is empty.
func (e *expression) text(name, value, attribute, v string) {
	e.name(name, attribute)
	if v == "" {
		e.remove(name)
	} else {
		e.set(name, e.value(value, str(v)))
	}
}

func (e *expression) milli(name, value, attribute string, t time.Time) {
	e.name(name, attribute)
	if t.IsZero() {
		e.remove(name)
	} else {
		e.set(name, e.value(value, num(t.UnixMilli())))
	}
}

// append adds values to a list attribute.
func (e *expression) append(name, value, attribute string, values []types.AttributeValue) {
	e.set(e.name(name, attribute), "list_append(if_not_exists("+name+","+e.value(":none", list(nil))+"),"+e.value(value, list(values))+")")
}
