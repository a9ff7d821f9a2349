package state

import (
	"slices"
	"sync"
)

// canonizer writes the canonical form of one JSON text in a single pass over it. The members of an object come out in
// the order of the text first. Objects that are out of order by that are noted, and put right in one more copy of what
// was written, so that the work stays linear however deep such objects are nested.
type canonizer struct {
	in  []byte
	pos int

	out     []byte   // canonical but for the order of members
	ordered []byte   // out with the members in order; used when something is out of order
	open    []member // members of the objects that are being read, innermost last
	moved   []member // members of the objects that are out of order, sorted, an object's in one piece
	objects []object // in the order of their start, those left out that need no work
	reorder bool
}

// member is one member of an object, by its place in canonizer.out.
type member struct {
	start, name, end int  // the quoted name is out[start:name], the value ends at end
	first            int  // index of the first entry of canonizer.objects that starts at or after start
	plain            bool // the name compares by its bytes
}

// object is an object that is out of order, or has such objects in it.
type object struct {
	start, end int // its place in canonizer.out, braces included
	next       int // index of the first entry of canonizer.objects behind it
	from, to   int // its members in canonizer.moved; none when it is in order itself
}

var canonizers = sync.Pool{New: func() any { return new(canonizer) }}

// keep is the size in bytes up to which buffers are used again.
const keep = 256 << 10

func (c *canonizer) release() {
	c.in = nil
	const entries = keep / 32
	if cap(c.out) > keep || cap(c.ordered) > keep || cap(c.open) > entries || cap(c.moved) > entries || cap(c.objects) > entries {
		return
	}
	canonizers.Put(c)
}

func (c *canonizer) run(raw []byte) error {
	c.in, c.pos, c.reorder = raw, 0, false
	c.out, c.ordered = c.out[:0], c.ordered[:0]
	c.open, c.moved, c.objects = c.open[:0], c.moved[:0], c.objects[:0]
	c.space()
	if err := c.value(0); err != nil {
		return err
	}
	if c.space(); c.pos != len(c.in) {
		return c.fail("trailing data")
	}
	if c.reorder {
		c.emit(0, len(c.out), 0)
	}
	return nil
}

func (c *canonizer) result() []byte {
	if c.reorder {
		return c.ordered
	}
	return c.out
}

func (c *canonizer) space() {
	for c.pos < len(c.in) {
		switch c.in[c.pos] {
		case ' ', '\t', '\n', '\r':
			c.pos++
		default:
			return
		}
	}
}

// peek is the byte at hand; 0, which begins nothing, at the end.
func (c *canonizer) peek() byte {
	if c.pos < len(c.in) {
		return c.in[c.pos]
	}
	return 0
}

func (c *canonizer) value(depth int) error {
	switch b := c.peek(); {
	case b == '"':
		_, err := c.text()
		return err
	case b == '-' || isDigit(b):
		return c.number()
	case b == '{' || b == '[':
		if depth == MaxDepth {
			return c.fail("nested too deep")
		}
		if b == '{' {
			return c.object(depth + 1)
		}
		return c.array(depth + 1)
	case b == 't':
		return c.literal("true")
	case b == 'f':
		return c.literal("false")
	case b == 'n':
		return c.literal("null")
	}
	return c.fail("no value")
}

func (c *canonizer) literal(word string) error {
	if len(c.in)-c.pos < len(word) || string(c.in[c.pos:c.pos+len(word)]) != word {
		return c.fail("no value")
	}
	c.pos += len(word)
	c.out = append(c.out, word...)
	return nil
}

func (c *canonizer) array(depth int) error {
	c.pos++
	c.out = append(c.out, '[')
	if c.space(); c.peek() == ']' {
		c.pos++
		c.out = append(c.out, ']')
		return nil
	}
	for {
		if err := c.value(depth); err != nil {
			return err
		}
		end, err := c.separator(']')
		if err != nil || end {
			return err
		}
	}
}

// separator reads what stands behind an element: a comma, or the closing bracket.
func (c *canonizer) separator(closing byte) (end bool, err error) {
	c.space()
	b := c.peek()
	if b != ',' && b != closing {
		return false, c.fail("no comma or closing bracket")
	}
	c.pos++
	c.out = append(c.out, b)
	if b == ',' {
		c.space()
	}
	return b == closing, nil
}

func (c *canonizer) object(depth int) error {
	slot, mine := len(c.objects), len(c.open)
	c.objects = append(c.objects, object{start: len(c.out)})
	c.pos++
	c.out = append(c.out, '{')
	sorted := true
	if c.space(); c.peek() == '}' {
		c.pos++
		c.out = append(c.out, '}')
		c.objects = c.objects[:slot]
		return nil
	}
	for end := false; !end; {
		m, err := c.member(depth)
		if err != nil {
			return err
		}
		if len(c.open) > mine {
			order := c.compare(c.open[len(c.open)-1], m)
			if order == 0 {
				return c.fail("duplicate member name")
			}
			sorted = sorted && order < 0
		}
		c.open = append(c.open, m)
		if end, err = c.separator('}'); err != nil {
			return err
		}
	}
	return c.close(slot, mine, sorted)
}

func (c *canonizer) member(depth int) (m member, err error) {
	if c.peek() != '"' {
		return m, c.fail("no member name")
	}
	m.start, m.first = len(c.out), len(c.objects)
	if m.plain, err = c.text(); err != nil {
		return m, err
	}
	m.name = len(c.out)
	if c.space(); c.peek() != ':' {
		return m, c.fail("no colon")
	}
	c.pos++
	c.out = append(c.out, ':')
	c.space()
	err = c.value(depth)
	m.end = len(c.out)
	return m, err
}

// close ends an object, whose members are c.open[mine:].
func (c *canonizer) close(slot, mine int, sorted bool) error {
	members := c.open[mine:]
	c.open = c.open[:mine]
	if sorted {
		if len(c.objects) == slot+1 {
			c.objects = c.objects[:slot]
		}
		return nil
	}
	slices.SortFunc(members, c.compare)
	for i := 1; i < len(members); i++ {
		if c.compare(members[i-1], members[i]) == 0 {
			return c.fail("duplicate member name")
		}
	}
	c.reorder = true
	o := &c.objects[slot]
	o.end, o.next, o.from = len(c.out), len(c.objects), len(c.moved)
	c.moved = append(c.moved, members...)
	o.to = len(c.moved)
	return nil
}

// emit appends out[from:to] to c.ordered, with the objects in it in order. i is the first entry of c.objects that starts
// at or after from.
func (c *canonizer) emit(from, to, i int) {
	for i < len(c.objects) && c.objects[i].start < to {
		o := c.objects[i]
		if o.from == o.to {
			i++
			continue
		}
		c.ordered = append(append(c.ordered, c.out[from:o.start]...), '{')
		for j, m := range c.moved[o.from:o.to] {
			if j > 0 {
				c.ordered = append(c.ordered, ',')
			}
			c.emit(m.start, m.end, m.first)
		}
		c.ordered = append(c.ordered, '}')
		from, i = o.end, o.next
	}
	c.ordered = append(c.ordered, c.out[from:to]...)
}
