package steps

import (
	"strings"

	"github.com/tsuzuki-go/tsuzuki/internal/digest"
	"github.com/tsuzuki-go/tsuzuki/state"
)

// DerivedKey is an idempotency key derived from a run's key. It doesn't depend on the attempt, the process or the time.
// Test vectors stand in docs/derived-keys.md.
type DerivedKey string

// String is the key as it is.
func (k DerivedKey) String() string { return string(k) }

// Sub appends "/<part>", percent-escaped like the parts of a [state.Key]. The part "compensate" is spelled
// "%63ompensate", so that no Sub of a step's key is the key of its compensation.
func (k DerivedKey) Sub(part string) DerivedKey {
	if part == "compensate" && strings.Count(string(k), "/") == 1 {
		return k + "/%63ompensate"
	}
	return k + "/" + DerivedKey(state.EscapePart(part))
}

// Hashed is the first n characters, clamped to 16 to 52, of the lower-case base32 SHA-256 of the key: for APIs with short
// or strict keys. 16 characters are 80 bits: enough against accidents for a million runs, so take what the API allows.
func (k DerivedKey) Hashed(n int) string { return digest.Short(string(k), n) }

// UUID is an RFC 9562 version 8 UUID from the SHA-256 of the key: for APIs that want a UUID.
func (k DerivedKey) UUID() string { return digest.UUID(string(k)) }
