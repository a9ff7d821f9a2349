package state

import (
	"bytes"
	"cmp"
	"unicode/utf16"
	"unicode/utf8"
)

// text reads a string and writes it in the spelling of RFC 8785. plain tells that what was written has the order of its
// bytes: no escapes, and no character above the surrogates, where the order of UTF-16 is another.
func (c *canonizer) text() (plain bool, err error) {
	c.pos++
	c.out = append(c.out, '"')
	plain = true
	for {
		from := c.pos
		for c.pos < len(c.in) && verbatim[c.in[c.pos]] {
			c.pos++
		}
		c.out = append(c.out, c.in[from:c.pos]...)
		if c.pos == len(c.in) {
			return false, c.fail("unfinished string")
		}
		switch b := c.in[c.pos]; {
		case b == '"':
			c.pos++
			c.out = append(c.out, '"')
			return plain, nil
		case b == '\\':
			plain = false
			if err := c.escape(); err != nil {
				return false, err
			}
		case b < 0x20:
			return false, c.fail("control character in a string")
		default:
			plain = plain && b < 0xee
			_, n := utf8.DecodeRune(c.in[c.pos:])
			if n == 1 {
				return false, c.fail("invalid UTF-8")
			}
			c.out = append(c.out, c.in[c.pos:c.pos+n]...)
			c.pos += n
		}
	}
}

// verbatim are the bytes that stand for themselves in a string, in the text and in the canonical form.
var verbatim = func() (t [256]bool) {
	for b := 0x20; b < 0x80; b++ {
		t[b] = b != '"' && b != '\\'
	}
	return t
}()

func (c *canonizer) escape() error {
	if c.pos+1 >= len(c.in) {
		return c.fail("unfinished string")
	}
	var r rune
	switch b := c.in[c.pos+1]; b {
	case '"', '\\', '/':
		r = rune(b)
	case 'b':
		r = '\b'
	case 'f':
		r = '\f'
	case 'n':
		r = '\n'
	case 'r':
		r = '\r'
	case 't':
		r = '\t'
	case 'u':
		return c.unicode()
	default:
		return c.fail("unknown escape")
	}
	c.pos += 2
	c.out = appendRune(c.out, r)
	return nil
}

func (c *canonizer) unicode() error {
	r := c.hex(c.pos)
	if r < 0 {
		return c.fail("malformed escape")
	}
	if utf16.IsSurrogate(r) {
		r = utf16.DecodeRune(r, c.hex(c.pos+6))
		if r == utf8.RuneError {
			return c.fail("lone surrogate")
		}
		c.pos += 6
	}
	c.pos += 6
	c.out = appendRune(c.out, r)
	return nil
}

// hex is the code unit that the escape at i, such as \u00e9, stands for; -1 when there is none.
func (c *canonizer) hex(i int) rune {
	if i+6 > len(c.in) || c.in[i] != '\\' || c.in[i+1] != 'u' {
		return -1
	}
	var r rune
	for _, b := range c.in[i+2 : i+6] {
		switch {
		case isDigit(b):
			b -= '0'
		case 'a' <= b && b <= 'f':
			b -= 'a' - 10
		case 'A' <= b && b <= 'F':
			b -= 'A' - 10
		default:
			return -1
		}
		r = r<<4 | rune(b)
	}
	return r
}

func appendRune(to []byte, r rune) []byte {
	switch r {
	case '"', '\\':
		return append(to, '\\', byte(r))
	case '\b':
		return append(to, `\b`...)
	case '\f':
		return append(to, `\f`...)
	case '\n':
		return append(to, `\n`...)
	case '\r':
		return append(to, `\r`...)
	case '\t':
		return append(to, `\t`...)
	}
	if r < 0x20 {
		const digits = "0123456789abcdef"
		return append(to, '\\', 'u', '0', '0', digits[r>>4], digits[r&15])
	}
	return utf8.AppendRune(to, r)
}

// compare is the order of two members by the UTF-16 code units of their names.
func (c *canonizer) compare(a, b member) int {
	x, y := c.out[a.start+1:a.name-1], c.out[b.start+1:b.name-1]
	if a.plain && b.plain {
		return bytes.Compare(x, y)
	}
	for len(x) > 0 && len(y) > 0 {
		var r, s rune
		r, x = written(x)
		s, y = written(y)
		if r != s {
			return compareUnits(r, s)
		}
	}
	return cmp.Compare(len(x), len(y))
}

// compareUnits is the order of two different characters by their UTF-16 code units: those beyond the first plane start
// with a surrogate, and so come before U+E000 to U+FFFF.
func compareUnits(r, s rune) int {
	first := func(r rune) rune {
		if r > 0xffff {
			return 0xd800
		}
		return r
	}
	if order := cmp.Compare(first(r), first(s)); order != 0 {
		return order
	}
	return cmp.Compare(r, s)
}

// written is the first character of s, a text that appendRune wrote, and what follows it.
func written(s []byte) (rune, []byte) {
	if s[0] != '\\' {
		r, n := utf8.DecodeRune(s)
		return r, s[n:]
	}
	switch s[1] {
	case 'b':
		return '\b', s[2:]
	case 'f':
		return '\f', s[2:]
	case 'n':
		return '\n', s[2:]
	case 'r':
		return '\r', s[2:]
	case 't':
		return '\t', s[2:]
	case 'u':
		lo := s[5] - '0'
		if s[5] >= 'a' {
			lo = s[5] - 'a' + 10
		}
		return rune(s[4]-'0')<<4 | rune(lo), s[6:]
	}
	return rune(s[1]), s[2:]
}
