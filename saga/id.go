package saga

import (
	"encoding/base64"
	"encoding/binary"
	"math/rand/v2"
)

// newID is 96 random bits as 16 characters: an owner or the name of a write. It needs to be unique, not secret; the
// generator is ChaCha8, seeded by the operating system.
func newID() string {
	var b [16]byte
	binary.LittleEndian.PutUint64(b[:8], rand.Uint64())
	binary.LittleEndian.PutUint64(b[8:], rand.Uint64())
	return base64.RawURLEncoding.EncodeToString(b[:12])
}
