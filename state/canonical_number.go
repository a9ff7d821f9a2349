package state

import (
	"bytes"
	"strconv"
)

func isDigit(b byte) bool { return '0' <= b && b <= '9' }

// digits is the run of digits at hand, which may be empty.
func (c *canonizer) digits() []byte {
	from := c.pos
	for c.pos < len(c.in) && isDigit(c.in[c.pos]) {
		c.pos++
	}
	return c.in[from:c.pos]
}

// number reads a number and writes its exact value.
func (c *canonizer) number() error {
	start := c.pos
	negative := c.peek() == '-'
	if negative {
		c.pos++
	}
	whole := c.digits()
	if len(whole) == 0 || whole[0] == '0' && len(whole) > 1 {
		return c.fail("malformed number")
	}
	if b := c.peek(); b != '.' && b|0x20 != 'e' && (whole[0] != '0' || !negative) && len(whole) <= mostPlain {
		c.out = append(c.out, c.in[start:c.pos]...) // an integer, the usual case, is canonical as it is
		return nil
	}
	var fraction []byte
	if c.peek() == '.' {
		c.pos++
		if fraction = c.digits(); len(fraction) == 0 {
			return c.fail("malformed number")
		}
	}
	exponent, err := c.exponent()
	if err != nil {
		return err
	}
	c.decimal(negative, whole, fraction, exponent)
	return nil
}

// maxExponent is the most digits of an exponent, leading zeros aside: what fits an int64 together with any length of text.
const maxExponent = 18

func (c *canonizer) exponent() (int64, error) {
	if c.peek()|0x20 != 'e' {
		return 0, nil
	}
	c.pos++
	negative := c.peek() == '-'
	if negative || c.peek() == '+' {
		c.pos++
	}
	digits := c.digits()
	if len(digits) == 0 {
		return 0, c.fail("malformed number")
	}
	digits = bytes.TrimLeft(digits, "0")
	if len(digits) > maxExponent {
		return 0, c.fail("exponent out of range")
	}
	var n int64
	for _, d := range digits {
		n = n*10 + int64(d-'0')
	}
	if negative {
		n = -n
	}
	return n, nil
}

// mostPlain is the number of digits before the point up to which a number is written without an exponent, and leastPlain
// that of zeros behind the point: the rule of ECMAScript, and so of RFC 8785. Beyond them a number takes no more room
// than its significant digits and the exponent.
const (
	mostPlain  = 21
	leastPlain = 6
)

// decimal writes whole.fraction times ten to the exponent: its significant digits alone decide, so that each value has
// one spelling.
func (c *canonizer) decimal(negative bool, whole, fraction []byte, exponent int64) {
	point := int64(len(whole)) + exponent // where the point stands, counted from the first digit
	lead := len(whole) - len(bytes.TrimLeft(whole, "0"))
	if whole = whole[lead:]; len(whole) == 0 {
		zeros := len(fraction) - len(bytes.TrimLeft(fraction, "0"))
		fraction, lead = fraction[zeros:], lead+zeros
	}
	point -= int64(lead)
	if fraction = bytes.TrimRight(fraction, "0"); len(fraction) == 0 {
		whole = bytes.TrimRight(whole, "0")
	}
	count := int64(len(whole) + len(fraction))
	if count == 0 {
		c.out = append(c.out, '0')
		return
	}
	if negative {
		c.out = append(c.out, '-')
	}
	start := len(c.out)
	switch {
	case -leastPlain < point && point <= 0:
		c.out = append(c.out, "0."...)
		c.zeros(-point)
		c.out = append(append(c.out, whole...), fraction...)
	case 0 < point && point <= mostPlain:
		c.out = append(append(c.out, whole...), fraction...)
		c.zeros(point - count)
		c.insertPoint(start+int(point), count > point)
	default:
		c.out = append(append(c.out, whole...), fraction...)
		c.insertPoint(start+1, count > 1)
		c.out = append(c.out, 'e')
		if point > 0 {
			c.out = append(c.out, '+')
		}
		c.out = strconv.AppendInt(c.out, point-1, 10)
	}
}

func (c *canonizer) zeros(n int64) {
	for ; n > 0; n-- {
		c.out = append(c.out, '0')
	}
}

func (c *canonizer) insertPoint(at int, needed bool) {
	if needed {
		c.out = append(c.out, 0)
		copy(c.out[at+1:], c.out[at:])
		c.out[at] = '.'
	}
}
