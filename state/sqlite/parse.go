package sqlite

import (
	"errors"
	"strconv"
	"time"
	"unicode/utf16"
	"unicode/utf8"
)

// parser reads the JSON that the encoder writes. It is not encoding/json for two reasons: a string comes back with the
// bytes that went in, even if they are no UTF-8, and a replay reads a record for every call, so it should not be slow.
//
// After the first error it stands at the end, and every method returns zero values.
type parser struct {
	b   []byte
	i   int
	err error
}

var errSyntax = errors.New("not what the library writes")

func (p *parser) fail() {
	if p.err == nil {
		p.err = errSyntax
	}
	p.i = len(p.b)
}

// at tells whether c comes next, and if so goes behind it.
func (p *parser) at(c byte) bool {
	if p.i < len(p.b) && p.b[p.i] == c {
		p.i++
		return true
	}
	return false
}

func (p *parser) expect(c byte) {
	if !p.at(c) {
		p.fail()
	}
}

// null tells whether null comes next, and if so goes behind it.
func (p *parser) null() bool {
	if len(p.b)-p.i >= 4 && string(p.b[p.i:p.i+4]) == "null" {
		p.i += 4
		return true
	}
	return false
}

func (p *parser) int() int64 {
	start := p.i
	for p.i < len(p.b) && (p.b[p.i] == '-' || p.b[p.i] >= '0' && p.b[p.i] <= '9') {
		p.i++
	}
	n, err := strconv.ParseInt(view(p.b[start:p.i]), 10, 64)
	if err != nil {
		p.fail()
		return 0
	}
	return n
}

// time is milliseconds or null.
func (p *parser) time() time.Time {
	if p.null() {
		return time.Time{}
	}
	ms := p.int()
	if p.err != nil {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

func (p *parser) text() string {
	p.expect('"')
	start := p.i
	for p.i < len(p.b) {
		switch p.b[p.i] {
		case '"':
			s := string(p.b[start:p.i])
			p.i++
			return s
		case '\\':
			return p.escaped(start)
		}
		p.i++
	}
	p.fail()
	return ""
}

// escaped goes on with a string that holds a backslash.
func (p *parser) escaped(start int) string {
	out := append([]byte(nil), p.b[start:p.i]...)
	for p.i < len(p.b) {
		c := p.b[p.i]
		p.i++
		switch c {
		case '"':
			return string(out)
		case '\\':
			out = p.escape(out)
		default:
			out = append(out, c)
		}
	}
	p.fail()
	return ""
}

// escape appends what the escape sequence behind a backslash stands for.
func (p *parser) escape(out []byte) []byte {
	const short, long = `"\/bfnrt`, "\"\\/\b\f\n\r\t"
	if p.at('u') {
		r := p.hex()
		if utf16.IsSurrogate(r) && p.at('\\') && p.at('u') {
			r = utf16.DecodeRune(r, p.hex())
		}
		return utf8.AppendRune(out, r)
	}
	for i := range len(short) {
		if p.at(short[i]) {
			return append(out, long[i])
		}
	}
	p.fail()
	return out
}

func (p *parser) hex() rune {
	if len(p.b)-p.i < 4 {
		p.fail()
		return 0
	}
	n, err := strconv.ParseUint(view(p.b[p.i:p.i+4]), 16, 32)
	if err != nil {
		p.fail()
		return 0
	}
	p.i += 4
	return rune(n)
}

func (p *parser) texts() (list []string) {
	p.expect('[')
	for more := !p.at(']'); more; more = p.more(']') {
		list = append(list, p.text())
	}
	return list
}

// more goes behind the comma or the closing bracket that comes next, and tells whether it was a comma.
func (p *parser) more(closing byte) bool {
	if p.at(',') {
		return true
	}
	p.expect(closing)
	return false
}

// object calls member with each name; member reads the value.
func (p *parser) object(member func(name string)) {
	p.expect('{')
	for more := !p.at('}'); more; more = p.more('}') {
		name := p.text()
		p.expect(':')
		member(name)
	}
}

// raw is a copy of the value that comes next, whatever it is.
func (p *parser) raw() []byte {
	start := p.i
	p.skip()
	if p.err != nil {
		return nil
	}
	return append([]byte{}, p.b[start:p.i]...)
}

// skip goes behind the value that comes next, which was found to be JSON before it was stored: its brackets match.
func (p *parser) skip() {
	start, depth := p.i, 0
	for p.i < len(p.b) {
		switch p.b[p.i] {
		case '"':
			p.skipText()
		case '[', '{':
			depth++
			p.i++
		case ']', '}':
			if depth == 0 {
				return
			}
			depth--
			p.i++
		case ',':
			if depth == 0 {
				return
			}
			p.i++
		default:
			p.i++
		}
		if depth == 0 && p.i > start && (p.b[p.i-1] == ']' || p.b[p.i-1] == '}' || p.b[p.i-1] == '"') {
			return
		}
	}
	if depth > 0 || p.i == start {
		p.fail()
	}
}

func (p *parser) skipText() {
	p.i++
	for p.i < len(p.b) {
		switch p.b[p.i] {
		case '"':
			p.i++
			return
		case '\\':
			p.i++
		}
		p.i++
	}
	p.fail()
}
