package sagahttp

import (
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	keyHeader      = "Idempotency-Key"
	replayedHeader = "Idempotency-Replayed"
)

// MaxKey is the most characters that an Idempotency-Key may have.
const MaxKey = 255

// ErrNoKey is in the error of [IdempotencyKey] when the request has no such field, so that a request function can fall
// back on a business key.
var ErrNoKey = errors.New("the request has no Idempotency-Key")

// IdempotencyKey is the key in the request's Idempotency-Key field, in either of the two forms in use: quoted, as the
// IETF draft has it (draft-ietf-httpapi-idempotency-key-header-07, a String of RFC 9651, parameters ignored), or bare,
// as nearly everyone sends it. Both spellings of a key are the same key.
//
// Refused, with an error that [Handler] answers with 400: no field ([ErrNoKey]), a repeated one, an empty key, more than
// [MaxKey] characters, control characters, and in the bare form a comma, since intermediaries may join repeated fields
// with one.
//
// The key is the client's choice alone. Join it to a tenant that the authentication tells; see the package's comment.
func IdempotencyKey(r *http.Request) (string, error) {
	values := r.Header.Values(keyHeader)
	switch len(values) {
	case 0:
		return "", &Refusal{kind: &kindKeyMissing, Err: ErrNoKey}
	case 1:
	default:
		return "", keyRefused("The Idempotency-Key field is repeated.")
	}
	key, err := parseKey(values[0])
	if err != nil {
		return "", err
	}
	switch {
	case strings.TrimSpace(key) == "":
		return "", keyRefused("The Idempotency-Key is empty.")
	case utf8.RuneCountInString(key) > MaxKey:
		return "", keyRefused(fmt.Sprintf("The Idempotency-Key has more than %d characters.", MaxKey))
	}
	return key, nil
}

func keyRefused(detail string) error {
	return &Refusal{kind: &kindKeyInvalid, Detail: detail}
}

// parseKey reads the value of one field.
func parseKey(field string) (string, error) {
	field = strings.Trim(field, " \t")
	if strings.HasPrefix(field, `"`) {
		return parseQuoted(field)
	}
	switch {
	case !utf8.ValidString(field):
		return "", keyRefused("The Idempotency-Key is not valid UTF-8.")
	case strings.ContainsFunc(field, unicode.IsControl):
		return "", keyRefused("The Idempotency-Key has control characters.")
	case strings.Contains(field, ","):
		return "", keyRefused("The Idempotency-Key has a comma, which only the quoted form may have, or is repeated.")
	}
	return field, nil
}

// parameters of an Item (RFC 9651, section 3.1.2). The draft defines none, so they are ignored.
var parameters = regexp.MustCompile(`^(?: *; *[a-z*][a-z0-9_.*-]*(?:=(?:"(?:[^"\\]|\\["\\])*"|[^";, ]+))?)* *$`)

// parseQuoted reads a String (RFC 9651, section 3.3.3): printable ASCII, in which a quote and a backslash are escaped.
func parseQuoted(field string) (string, error) {
	var key strings.Builder
	for i := 1; i < len(field); i++ {
		switch c := field[i]; {
		case c == '"':
			if !parameters.MatchString(field[i+1:]) {
				return "", keyRefused("Something follows the quoted Idempotency-Key.")
			}
			return key.String(), nil
		case c == '\\':
			i++
			if i == len(field) || field[i] != '"' && field[i] != '\\' {
				return "", keyRefused("The quoted Idempotency-Key has a backslash that escapes nothing.")
			}
			key.WriteByte(field[i])
		case c < 0x20 || c > 0x7e:
			return "", keyRefused("The quoted Idempotency-Key has characters other than printable ASCII.")
		default:
			key.WriteByte(c)
		}
	}
	return "", keyRefused("The quoted Idempotency-Key has no closing quote.")
}

// sendable is the key as a field's value, in the quoted form or the bare one.
func sendable(key string, quoted bool) (string, error) {
	switch {
	case strings.TrimSpace(key) == "":
		return "", errors.New("it is empty")
	case utf8.RuneCountInString(key) > MaxKey:
		return "", fmt.Errorf("it has more than %d characters", MaxKey)
	}
	if quoted {
		key = `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(key) + `"`
		if _, err := parseQuoted(key); err != nil {
			return "", errors.New("the quoted form takes printable ASCII alone")
		}
		return key, nil
	}
	if got, err := parseKey(key); err != nil || got != key {
		return "", errors.New("the bare form takes no comma, no control character, no quote at its start and no space at either end")
	}
	return key, nil
}
