package state

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
)

// HashVersion is the version of the algorithm of [PayloadHash]. It stands before the digest, so that a later algorithm
// can be told from this one.
const HashVersion = 1

// PayloadHash is "<HashVersion>:<digest>", where the digest is the SHA-256 of the canonical form of raw (see [Canonical])
// in unpadded URL-safe base64: 45 characters in all. Two texts of the same JSON value have the same hash, whatever the
// order of their members, the spelling of their strings and numbers, and their white space. Errors are of class
// [ErrInvalidInput] and never quote the payload. It may be called concurrently.
func PayloadHash(raw json.RawMessage) (string, error) {
	c := canonizers.Get().(*canonizer)
	defer c.release()
	if err := c.run(raw); err != nil {
		return "", err
	}
	sum := sha256.Sum256(c.result())
	const prefix = 2
	var b [prefix + 43]byte
	strconv.AppendInt(b[:0], HashVersion, 10)
	b[prefix-1] = ':'
	base64.RawURLEncoding.Encode(b[prefix:], sum[:])
	return string(b[:]), nil
}

// Canonical is raw in its canonical form: no white space, members in the order of RFC 8785 (UTF-16 code units of their
// names), strings in its spelling, and numbers by their exact decimal value, in the shape that RFC 8785 gives them. A
// number that is the shortest spelling of a double is therefore written as RFC 8785 says; one with more digits keeps
// them all, so that 2^53 and 2^53+1 stay two. Negative zero is zero.
//
// Refused with [ErrInvalidInput], never quoting the payload: what is not JSON, trailing data, duplicate names, invalid
// UTF-8 and lone surrogates, values nested more than [MaxDepth] deep, and exponents of more than 18 digits.
func Canonical(raw json.RawMessage) ([]byte, error) {
	c := canonizers.Get().(*canonizer)
	defer c.release()
	if err := c.run(raw); err != nil {
		return nil, err
	}
	return slices.Clone(c.result()), nil
}

// MaxDepth is how deep the arrays and objects of a payload may be nested.
const MaxDepth = 1000

func (c *canonizer) fail(what string) error {
	return fmt.Errorf("%w: the payload is not acceptable JSON: %s at byte %d", ErrInvalidInput, what, c.pos)
}
