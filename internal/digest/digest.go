// Package digest is the hashing that derived keys and publishers share: a long key of any characters becomes a short one
// of safe characters, the same in every process and every version of the library.
package digest

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/hex"
)

var encoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// Lengths that Short can give: 52 characters are the whole of a SHA-256 in base32.
const (
	Least = 16
	Most  = 52
)

// Short is the first n characters, clamped to Least and Most, of the lower-case base32 (RFC 4648) SHA-256 of key.
func Short(key string, n int) string {
	sum := sha256.Sum256([]byte(key))
	return encoding.EncodeToString(sum[:])[:max(Least, min(n, Most))]
}

// UUID is an RFC 9562 version 8 UUID whose 122 free bits are the first ones of the SHA-256 of key.
func UUID(key string) string {
	sum := sha256.Sum256([]byte(key))
	sum[6] = sum[6]&0x0f | 0x80 // version 8
	sum[8] = sum[8]&0x3f | 0x80 // variant 10
	var b [36]byte
	hex.Encode(b[0:8], sum[0:4])
	hex.Encode(b[9:13], sum[4:6])
	hex.Encode(b[14:18], sum[6:8])
	hex.Encode(b[19:23], sum[8:10])
	hex.Encode(b[24:36], sum[10:16])
	b[8], b[13], b[18], b[23] = '-', '-', '-', '-'
	return string(b[:])
}
